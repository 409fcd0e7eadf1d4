import os, sys
from confluent_kafka import Consumer, TopicPartition

servers, topic, partitions, expected, finished = sys.argv[1:]

consumer = Consumer({"bootstrap.servers": servers, "group.id": "audit", "enable.auto.commit": False})
parts = [TopicPartition(topic, number, 0) for number in range(int(partitions))]
consumer.assign(parts)


def at_the_end():
    """Whether nothing is left, by the brokers' own count."""
    read = {part.partition: max(part.offset, 0) for part in consumer.position(parts)}
    return all(read[part.partition] == consumer.get_watermark_offsets(part, timeout=20)[1] for part in parts)


judge = Judge(expected)
while True:
    last_look = os.path.exists(finished)
    found = [message for message in consumer.consume(500, timeout=1) if message.error() is None]
    # Records of one key are in one partition, and those of a partition come in its order.
    for message in found:
        headers = {name: value.decode() for name, value in message.headers()}
        body = message.value().decode()
        if message.key().decode() != json.loads(body)["key"]["transferId"]:
            judge.charge("another record key", headers["eventId"])
        judge.arrived(headers["eventId"], int(headers["position"]), body)
    if last_look and not found and at_the_end():
        break
print(json.dumps(judge.verdict()))
