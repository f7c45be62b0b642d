"""What a published package raised, as JSON has it: the kind, the status, and the code told."""

import json

import cartesia
import openai
import websockets.exceptions
from deepgram.core.api_error import ApiError as DeepgramError
from elevenlabs.core.api_error import ApiError as ElevenLabsError


class Told(Exception):
    """An error that is a message: its type, its status and its code."""


def problem_of(call):
    """None where nothing was raised."""
    try:
        call()
    except openai.APIStatusError as error:
        return [type(error).__name__, error.status_code, error.code]
    except cartesia.APIStatusError as error:
        return [type(error).__name__, error.status_code, error.body["error_code"]]
    except ElevenLabsError as error:
        body = error.body
        code = body["detail"]["status"] if "detail" in body else body["error"]
        return [type(error).__name__, error.status_code, code]
    except DeepgramError as error:
        return [type(error).__name__, error.status_code, error.body["err_code"]]
    except websockets.exceptions.InvalidStatus as error:
        body = json.loads(error.response.body)
        code = body.get("error_code") or body.get("err_code") or body["detail"]["status"]
        return [type(error).__name__, error.response.status_code, code]
    except websockets.exceptions.ConnectionClosed as error:
        return [type(error).__name__, error.rcvd.code, error.rcvd.reason]
    except Told as error:
        return list(error.args)
    return None
