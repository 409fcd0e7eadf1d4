import os, sys, boto3

endpoint, region, queue, expected, finished = sys.argv[1:]
sqs = boto3.client("sqs", endpoint_url=endpoint, region_name=region, aws_access_key_id="test", aws_secret_access_key="test")
url = sqs.get_queue_url(QueueName=queue)["QueueUrl"]
judge = Judge(expected)
while True:
    last_look = os.path.exists(finished)
    found = sqs.receive_message(
        QueueUrl=url, MaxNumberOfMessages=10, WaitTimeSeconds=1, MessageAttributeNames=["All"]
    ).get("Messages", [])
    for message in found:
        attributes = {name: value["StringValue"] for name, value in message["MessageAttributes"].items()}
        judge.arrived(attributes["eventId"], int(attributes["position"]), message["Body"])
    if found:
        entries = [{"Id": str(at), "ReceiptHandle": message["ReceiptHandle"]} for at, message in enumerate(found)]
        sqs.delete_message_batch(QueueUrl=url, Entries=entries)
    elif last_look:
        break
print(json.dumps(judge.verdict()))
