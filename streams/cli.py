"""omni-speak: the command line.

Light to import: a command brings in what it needs when it runs, so that `--help` answers at once
and talking to a warm engine never loads torch.
"""

from __future__ import annotations

import os
import re
import sys
from importlib.metadata import version
from pathlib import Path
from time import monotonic
from typing import Annotated, Literal, NoReturn

import typer

from omni_speak.runtime.errors import InvalidRequest, SpeechError

STARTED = monotonic()
"""The nearest to the start of the process: what `say --json` counts from."""

FAILED = 1
BAD_INPUT = 2
UNAUTHORIZED = 3
BUSY = 4
UNREACHABLE = 5
INTERRUPTED = 130
BROKEN_PIPE = 141

EXIT_CODES = {
    "unauthorized": UNAUTHORIZED,
    "overloaded": BUSY,
    "limit_reached": BUSY,
    "unavailable": BUSY,
    "connection_lost": UNREACHABLE,
}
"""By the code of an error."""

app = typer.Typer(
    help="Speak: text goes in while audio comes out.",
    epilog="`omni-speak TEXT` is short for `omni-speak say TEXT`; `-` reads standard input, and "
    "a text that begins with - follows --.",
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)

COMMANDS = {"say", "serve", "voices", "doctor"}

Model = Annotated[str, typer.Option(help="A bundled model's name, or a model's directory.")]
Lexicon = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        exists=True,
        dir_okay=False,
        help="How to read words: one a line, the word, a tab, its IPA.",
    ),
]
Server = Annotated[
    str | None,
    typer.Option(
        metavar="URL",
        help="A running server, instead of your own warm engine; OMNI_SPEAK_TOKEN holds the token "
        "it may ask for.",
    ),
]


def show_version(wanted: bool) -> None:
    if wanted:
        print(f"omni-speak {version('omni-speak')}")
        raise typer.Exit


@app.callback()
def options(
    _version: Annotated[
        bool,
        typer.Option("--version", callback=show_version, is_eager=True, help="Show the version."),
    ] = False,
) -> None:
    pass


@app.command()
def say(
    text: Annotated[
        list[str] | None, typer.Argument(help="What to say; - reads it from stdin.")
    ] = None,
    file: Annotated[
        Path | None, typer.Option("--file", "-f", help="Read the text from this file.")
    ] = None,
    output: Annotated[
        str | None,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            help="Write a .wav, .flac, .ogg, .mp3 or .pcm file; - writes WAV to stdout. "
            "Without it a stdout that is no terminal gets raw 16-bit mono samples.",
        ),
    ] = None,
    play: Annotated[bool, typer.Option("--play", help="Play while speaking.")] = False,
    voice: Annotated[str | None, typer.Option(help="See `omni-speak voices`.")] = None,
    speed: Annotated[float, typer.Option(help="1.0 is the voice's own rate.")] = 1.0,
    seed: Annotated[int | None, typer.Option(help="Speak exactly as an earlier time.")] = None,
    model: Model = "wren",
    lexicon: Lexicon = None,
    server: Server = None,
    no_daemon: Annotated[
        bool, typer.Option("--no-daemon", help="Load the engine into this process.")
    ] = False,
    json: Annotated[
        bool,
        typer.Option(
            "--json", help="Print timings as JSON: on stdout, on stderr if audio is there."
        ),
    ] = False,
) -> None:
    """Say a text: to a file, to the loudspeaker, or down a pipe."""
    from omni_speak.runtime.request import SpeechRequest
    from omni_speak.streams.say import Job, read_text, run

    job = Job(
        request=SpeechRequest(read_text(text or [], file), voice=voice, speed=speed, seed=seed),
        model=model,
        lexicon=lexicon,
        server=server,
        in_process=no_daemon,
        output=output,
        play=play,
        json=json,
        started=STARTED,
    )
    try:
        run(job)
    except KeyboardInterrupt:
        leave(INTERRUPTED)
    except BrokenPipeError:
        leave(BROKEN_PIPE)
    if no_daemon:
        leave(0)


@app.command()
def serve(
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="0 takes any free one.")] = 8080,
    uds: Annotated[
        Path | None, typer.Option(help="Listen on this Unix socket, and on no port.")
    ] = None,
    model: Model = "wren",
    lexicon: Lexicon = None,
    max_streams: Annotated[
        str, typer.Option(help="Streams at the same time; auto: as many as can be in time.")
    ] = "auto",
    max_queue: Annotated[
        int, typer.Option(min=0, help="Requests that wait for a place; more are refused.")
    ] = 64,
    ordering: Annotated[
        Literal["clock", "arrival"],
        typer.Option(help="arrival is vLLM's own order, to compare with."),
    ] = "clock",
    tokens: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Let in only who has one of these tokens, one a line; else those of "
            "OMNI_SPEAK_TOKENS, divided by commas; else everybody.",
        ),
    ] = None,
    allow_origin: Annotated[
        list[str] | None,
        typer.Option(
            metavar="ORIGIN",
            help="Another site whose pages may connect, or, without tokens, this one under a name; "
            "* is any.",
        ),
    ] = None,
    streams_per_token: Annotated[
        int,
        typer.Option(
            min=1, help="Contexts and HTTP requests that a token may have spoken at once."
        ),
    ] = 64,
    text_rate: Annotated[
        int, typer.Option(min=1, help="Characters a minute that a token may send.")
    ] = 240_000,
    dialects: Annotated[
        str | None,
        typer.Option(
            metavar="NAME,…",
            help="Other services' protocols to answer beside our own; else all there are.",
        ),
    ] = None,
    send_timeout: Annotated[
        float,
        typer.Option(
            min=1,
            metavar="SECONDS",
            help="A client that takes nothing for so long, or answers no ping (sent every third of "
            "it), is given up.",
        ),
    ] = 60.0,
    tls_cert: Annotated[
        Path | None, typer.Option(exists=True, help="Serve TLS with this certificate.")
    ] = None,
    tls_key: Annotated[
        Path | None, typer.Option(exists=True, help="The certificate's key.")
    ] = None,
    tls_self_signed: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR", file_okay=False, help="Serve TLS with a certificate made and kept here."
        ),
    ] = None,
) -> None:
    """Serve HTTP and websockets."""
    import anyio

    from omni_speak.streams.access import Policy, read_tokens, self_signed
    from omni_speak.streams.server import DIALECTS, engine_factory
    from omni_speak.streams.server import serve as run_server

    if max_streams != "auto" and not (max_streams.isdecimal() and int(max_streams) > 0):
        raise typer.BadParameter(
            f"must be auto or a positive number, got {max_streams!r}", param_hint="--max-streams"
        )
    streams = "auto" if max_streams == "auto" else int(max_streams)
    factory = engine_factory(
        model=model,
        lexicon=lexicon,
        max_streams=streams,
        max_queue=max_queue,
        ordering=ordering,
    )
    try:
        policy = Policy(
            tokens=read_tokens(tokens),
            origins=tuple(allow_origin or ()),
            streams=streams_per_token,
            text_rate=text_rate,
        )
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--tokens") from None
    for origin in allow_origin or ():
        if not re.fullmatch(r"\*|https?://[^/\s]+", origin):
            raise typer.BadParameter(
                f"must be as https://example.com, or *; got {origin!r}", param_hint="--allow-origin"
            )
    names = list(DIALECTS)
    if dialects is not None:
        names = [name.strip() for name in dialects.split(",") if name.strip()]
    if unknown := sorted(set(names) - set(DIALECTS)):
        raise typer.BadParameter(
            f"no dialect {unknown[0]!r}; there are {', '.join(DIALECTS)}", param_hint="--dialects"
        )
    if (tls_cert is None) != (tls_key is None) or (tls_cert and tls_self_signed):
        raise typer.BadParameter(
            "takes both --tls-cert and --tls-key, or neither and --tls-self-signed",
            param_hint="TLS",
        )
    tls = (tls_cert, tls_key) if tls_cert and tls_key else None
    if tls_self_signed is not None:
        tls = self_signed(tls_self_signed, host)
    anyio.run(
        lambda: run_server(
            factory,
            host=host,
            port=port,
            uds=uds,
            dialects=names,
            policy=policy,
            tls=tls,
            send_timeout=send_timeout,
        )
    )
    leave(0)


@app.command()
def voices(model: Model = "wren", server: Server = None) -> None:
    """List the voices; the first is the default."""
    import anyio

    from omni_speak.streams.daemon import connect

    async def list_voices() -> tuple[str, ...]:
        async with connect(model, server) as client:
            info = client.info
            return (info.voice, *(voice for voice in info.voices if voice != info.voice))

    print("\n".join(anyio.run(list_voices)))


@app.command()
def doctor() -> None:
    """Tell what is installed here and what works."""
    from omni_speak.streams.doctor import examine

    raise typer.Exit(0 if examine() else 1)


def main() -> None:
    """Run the command line: one line on stderr and an exit code for whatever goes wrong."""
    plug_closed_streams()
    arguments = sys.argv[1:] or ["--help"]
    known = COMMANDS | {"--help", "-h", "--version"}
    if arguments[0] not in known:
        arguments.insert(0, "say")
    try:
        sys.exit(app(arguments, standalone_mode=False))
    except typer.TyperException as error:
        print(f"omni-speak: {error.format_message().rstrip('.')}; see --help", file=sys.stderr)
        sys.exit(error.exit_code)
    except SpeechError as error:
        print(f"omni-speak: {error}", file=sys.stderr)
        sys.exit(exit_code(error))
    except OSError as error:
        print(f"omni-speak: {error}", file=sys.stderr)
        sys.exit(FAILED)


def exit_code(error: SpeechError) -> int:
    # An error with a `param` blames an input, whoever found it.
    blames_input = bool(error.param) or isinstance(error, InvalidRequest)
    return EXIT_CODES.get(error.code, BAD_INPUT if blames_input else FAILED)


def plug_closed_streams() -> None:
    """No file or socket may get the number of a standard stream that was closed: audio, or an
    error, would be written into it."""
    for number in (0, 1, 2):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # the lowest number that is free
    if sys.stderr is None:
        sys.stderr = os.fdopen(2, "w")


def leave(code: int) -> NoReturn:
    """At once: a thread may hang in a pipe that nobody empties, Python's own exit would wait for
    it or complain about a stdout that cannot be flushed, and taking an engine's torch and vLLM
    down module by module takes seconds."""
    if code == 0 and sys.stdout is not None:
        sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    main()
