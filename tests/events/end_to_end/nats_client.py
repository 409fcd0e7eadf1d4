import asyncio, os, sys, nats

url, stream, durable, expected, finished = sys.argv[1:]


async def quiet(error):
    pass


async def main():
    connection = await nats.connect(
        url, max_reconnect_attempts=-1, reconnect_time_wait=0.1, allow_reconnect=True, error_cb=quiet
    )
    subscription = await connection.jetstream(timeout=5).pull_subscribe_bind(durable, stream)
    arrived = {}
    while True:
        last_look = os.path.exists(finished)
        try:
            found = await subscription.fetch(100, timeout=1)
        except Exception:
            found = []
            if not connection.is_connected:
                last_look = False
        for message in found:
            # What is redelivered has its old place in the stream.
            arrived.setdefault(message.metadata.sequence.stream, message)
            try:
                await message.ack()
            except Exception:
                pass
        if last_look and not found:
            break
    judge = Judge(expected)
    for _, message in sorted(arrived.items()):
        headers = message.headers
        judge.arrived(headers["eventId"], int(headers["position"]), message.data.decode())
    await connection.close()
    print(json.dumps(judge.verdict()))


asyncio.run(main())
