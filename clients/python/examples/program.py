"""Orders are messages, mails are tasks; both survive a cut connection, a lost answer and a restart of the server."""

import asyncio
import json
import os
import time

from holdfastdb import AsyncClient, TaskRun, Worker, api, errors


async def main() -> None:
    url = os.environ.get("HOLDFAST_URL", "http://127.0.0.1:8080")
    async with AsyncClient(url, token=os.environ.get("HOLDFAST_TOKEN")) as client:
        orders, id = client.namespace("default"), f"order-{time.time_ns()}"

        # Only if there is no such stream yet. If the answer is lost, it is sent again, and written once.
        await orders.write(id, {"type": "Placed", "data": {"items": 3}}, expected=-1, level="power")

        # All of it, or nothing.
        paid: api.Write = {"stream": id, "expected": 0, "messages": [{"type": "Paid", "data": {"amount": 5}}]}
        receipt: api.Enqueue = {"tasks": [{"kind": "receipt", "payload": json.dumps({"order": id}).encode()}]}
        done = await client.update(
            [{"namespace": "default", "write": paid}, {"namespace": "default", "enqueue": receipt}]
        )
        print("paid at", done[0]["written"]["position"])

        try:
            await orders.write(id, {"type": "Cancelled", "data": {}}, expected=0)
        except errors.Conflict as e:
            print(f"the version is {e.actual}, not {e.expected}")

        # It goes on when the server was away. Whoever keeps position and history begins there again.
        async with orders.follow(stream=id) as follower:
            async for m in follower:
                print(m["position"], m["type"], m["data"])
                if m["type"] == "Paid":
                    break

        async def send(run: TaskRun) -> None:
            print("receipt for", "this order" if run.args()["order"] == id else "another one")
            worker.stop()  # a program: loop.add_signal_handler(signal.SIGTERM, worker.stop)

        worker = Worker(orders.tasks, {"receipt": send})
        await worker.run()  # what runs is completed


asyncio.run(main())
