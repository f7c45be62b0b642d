"""pipecat's services, each in a pipeline of its own: URL, voice; an utterance, a turn of tokens,
and what is said after an interruption."""

import asyncio
import json
import sys
from contextlib import asynccontextmanager

import aiohttp
from pipecat.frames.frames import (
    EndFrame,
    InterruptionFrame,
    LLMFullResponseEndFrame,
    LLMFullResponseStartFrame,
    LLMTextFrame,
    TTSAudioRawFrame,
    TTSSpeakFrame,
    TTSStoppedFrame,
    TTSTextFrame,
)
from pipecat.pipeline.pipeline import Pipeline
from pipecat.pipeline.worker import PipelineParams, PipelineWorker
from pipecat.processors.frame_processor import FrameProcessor
from pipecat.services.cartesia.tts import CartesiaTTSService
from pipecat.services.deepgram.tts import DeepgramHttpTTSService, DeepgramTTSService
from pipecat.services.elevenlabs.tts import (
    ElevenLabsHttpTTSService,
    ElevenLabsTTSService,
)
from pipecat.services.openai.tts import OpenAITTSService
from pipecat.workers.runner import WorkerRunner

url, voice = sys.argv[1:3]
websocket = url.replace("http", "ws")
key = "nobody-asks-for-this-key"


def services(http):
    openai = OpenAITTSService.Settings(model="fake", voice="alloy")  # it knows the hosted names
    return {
        "openai": OpenAITTSService(api_key=key, base_url=f"{url}/v1", settings=openai),
        "elevenlabs": service_of(ElevenLabsTTSService, url=websocket),
        "elevenlabs-http": service_of(ElevenLabsHttpTTSService, base_url=url, aiohttp_session=http),
        "cartesia": service_of(CartesiaTTSService, url=f"{websocket}/tts/websocket"),
        "deepgram": service_of(DeepgramTTSService, base_url=websocket),
        "deepgram-http": service_of(DeepgramHttpTTSService, base_url=url, aiohttp_session=http),
    }


def service_of(kind, **options):
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


async def converse(tts):
    told = {}
    async with pipeline(tts) as (worker, ear, errors):
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
    return told | {"errors": errors}


async def main():
    async with aiohttp.ClientSession() as http:
        told = {name: await converse(tts) for name, tts in services(http).items()}
    print(json.dumps(told))


asyncio.run(main())
