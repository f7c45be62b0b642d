"""pipecat's services in a pipeline: URL, service, voice; an utterance, a turn of tokens, and what
is said after an interruption."""

import asyncio
import json
import sys
from contextlib import asynccontextmanager

import aiohttp
from loguru import logger

logger.remove()  # it would go to standard error

from pipecat.frames.frames import (  # noqa: E402
    EndFrame,
    ErrorFrame,
    InterruptionFrame,
    LLMFullResponseEndFrame,
    LLMFullResponseStartFrame,
    LLMTextFrame,
    TTSAudioRawFrame,
    TTSSpeakFrame,
    TTSStoppedFrame,
    TTSTextFrame,
)
from pipecat.pipeline.pipeline import Pipeline  # noqa: E402
from pipecat.pipeline.worker import PipelineParams, PipelineWorker  # noqa: E402
from pipecat.processors.frame_processor import FrameProcessor  # noqa: E402
from pipecat.services.cartesia.tts import CartesiaTTSService  # noqa: E402
from pipecat.services.deepgram.tts import DeepgramHttpTTSService, DeepgramTTSService  # noqa: E402
from pipecat.services.elevenlabs.tts import (  # noqa: E402
    ElevenLabsHttpTTSService,
    ElevenLabsTTSService,
)
from pipecat.services.openai.tts import OpenAITTSService  # noqa: E402
from pipecat.workers.runner import WorkerRunner  # noqa: E402

url, name, voice = sys.argv[1:4]
websocket = url.replace("http", "ws")
key = "nobody-asks-for-this-key"


def service(http):
    match name:
        case "openai":
            kind, options = OpenAITTSService, {"base_url": f"{url}/v1"}
            return kind(api_key=key, settings=kind.Settings(voice=voice, model="fake"), **options)
        case "elevenlabs":
            kind, options = ElevenLabsTTSService, {"url": websocket}
        case "elevenlabs-http":
            kind, options = ElevenLabsHttpTTSService, {"base_url": url, "aiohttp_session": http}
        case "cartesia":
            kind, options = CartesiaTTSService, {"url": f"{websocket}/tts/websocket"}
        case "deepgram":
            kind, options = DeepgramTTSService, {"base_url": websocket}
        case "deepgram-http":
            kind, options = DeepgramHttpTTSService, {"base_url": url, "aiohttp_session": http}
    return kind(api_key=key, settings=kind.Settings(voice=voice), **options)


class Listener(FrameProcessor):
    """The end of the pipeline: what was heard since it was asked last."""

    def __init__(self):
        super().__init__()
        self.audio, self.words, self.times = b"", [], []
        self.sounding, self.stopped, self.interrupted = (asyncio.Event() for _ in range(3))

    async def process_frame(self, frame, direction):
        await super().process_frame(frame, direction)
        match frame:
            case TTSAudioRawFrame():
                self.audio += frame.audio
                self.sounding.set()
            case TTSTextFrame():
                self.words.append(frame.text)
                self.times.append(frame.pts)
            case TTSStoppedFrame():
                self.stopped.set()
            case InterruptionFrame():
                self.interrupted.set()
        await self.push_frame(frame, direction)

    def heard(self):
        times = [time for time in self.times if time is not None]
        said = {"bytes": len(self.audio), "words": self.words, "timed": len(times)}
        said["in_order"] = times == sorted(times)
        self.audio, self.words, self.times = b"", [], []
        for event in (self.sounding, self.stopped, self.interrupted):
            event.clear()
        return said


@asynccontextmanager
async def pipeline(tts):
    listener, errors = Listener(), []
    worker = PipelineWorker(
        Pipeline([tts, listener]),
        params=PipelineParams(audio_out_sample_rate=24000),
        enable_rtvi=False,
        idle_timeout_secs=None,
    )
    started = asyncio.Event()

    @worker.event_handler("on_pipeline_started")
    async def on_started(worker, frame):
        started.set()

    @worker.event_handler("on_pipeline_error")
    async def on_error(worker, frame):
        errors.append(frame.error)

    runner = WorkerRunner(handle_sigint=False)
    await runner.add_workers(worker)
    running = asyncio.create_task(runner.run())
    await started.wait()
    yield worker, listener, errors
    await worker.queue_frame(EndFrame())
    await running


async def main():
    async with aiohttp.ClientSession() as http, pipeline(service(http)) as (worker, ear, errors):
        told = {}
        await worker.queue_frame(TTSSpeakFrame("Hello there my friend."))
        await ear.stopped.wait()
        told["spoken"] = ear.heard()

        await worker.queue_frame(LLMFullResponseStartFrame())
        for token in ("Good", " day", " to", " you.", " Another", " one", " speaks."):
            await worker.queue_frame(LLMTextFrame(token))
        await worker.queue_frame(LLMFullResponseEndFrame())
        await ear.stopped.wait()
        told["turn"] = ear.heard()

        await worker.queue_frame(TTSSpeakFrame("Say #endless"))
        await ear.sounding.wait()
        await worker.queue_frame(InterruptionFrame())
        await ear.interrupted.wait()
        ear.heard()
        await worker.queue_frame(TTSSpeakFrame("Yes, what?"))
        await ear.stopped.wait()
        told["after"] = ear.heard()
        print(json.dumps(told | {"errors": errors}))


asyncio.run(main())
