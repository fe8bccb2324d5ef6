"""Writes a message, reads it, and meets an error, with the client that openapi-python-client has made of the server's
document."""

import os

from client import AuthenticatedClient
from client.api.messages import read_messages, write_messages
from client.api.tasks import enqueue_tasks
from client.models import Enqueue, NewMessage, NewMessageData, NewTask, Problem, Write

client = AuthenticatedClient(base_url=os.environ["HOLDFAST_URL"], token=os.environ["HOLDFAST_TOKEN"])
data = NewMessageData.from_dict({"items": 3})
body = Write(stream="python-1", expected=-1, messages=[NewMessage(type_="Placed", data=data)])

written = write_messages.sync("default", client=client, body=body)
assert written is not None and written.position == 0, written

read = read_messages.sync("default", client=client, stream="python-1")
assert read is not None and read.messages[0].data.to_dict() == {"items": 3}, read

again = write_messages.sync("default", client=client, body=body)
assert isinstance(again, Problem) and again.code == "conflict" and again.actual == 0, again

tasks = enqueue_tasks.sync("default", client=client, body=Enqueue(tasks=[NewTask(kind="mail")]))
assert tasks is not None and tasks.results[0].id, tasks
print("Python: well")
