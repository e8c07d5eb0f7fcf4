"""The yardstick: a Starlette application that answers 202 to a POST and does nothing else."""

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route


async def hello(request: Request) -> JSONResponse:
    await request.body()
    return JSONResponse({"status": "accepted"}, status_code=202)


app = Starlette(routes=[Route("/webhooks/stripe", hello, methods=["POST"])])
