from prometheus_client import CollectorRegistry, start_http_server

from deploy.ports import free_port
from gateway.neighbours import metrics_texts
from streams.metrics import StreamMetrics


async def test_those_that_answer_are_heard_and_the_others_are_known_to_be_silent() -> None:
    registry = CollectorRegistry()
    StreamMetrics(registry).of["batch"].lag.set(7)
    port, silent = free_port(), free_port()
    server, thread = start_http_server(port, addr="127.0.0.1", registry=registry)
    try:
        texts = await metrics_texts({"streams-0": port, "release": silent})
    finally:
        server.shutdown()
        server.server_close()
        thread.join(10)
    assert texts["release"] is None
    assert "reef_streams_batch_lag_events 7.0" in (texts["streams-0"] or "")
