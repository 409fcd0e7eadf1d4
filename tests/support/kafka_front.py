# A broker of Kafka as far as administration, TLS and SASL go, which the mock cluster lacks: one node, topics in memory,
# no records. Written after the protocol's description; it shares nothing with librdkafka. Ends with its standard input.
import base64, hashlib, hmac, json, os, socketserver, ssl, struct, sys, threading

options = json.loads(sys.argv[1])
topics = {}
METADATA, HANDSHAKE, VERSIONS, CREATE, PRODUCER_ID, DESCRIBE, ALTER, AUTHENTICATE = 3, 17, 18, 19, 22, 32, 33, 36
APIS = {METADATA: (1, 4), HANDSHAKE: (0, 1), VERSIONS: (0, 0), CREATE: (0, 2), PRODUCER_ID: (0, 1), DESCRIBE: (0, 1),
        ALTER: (0, 1), AUTHENTICATE: (0, 0)}
UNKNOWN_TOPIC, TOPIC_EXISTS, FEW_BROKERS, UNSUPPORTED, NOT_AUTHENTICATED = 3, 36, 38, 35, 58


class Reader:
    def __init__(self, data):
        self.data, self.at = data, 0

    def take(self, form):
        (value,) = struct.unpack_from(">" + form, self.data, self.at)
        self.at += struct.calcsize(">" + form)
        return value

    def raw(self, count):
        self.at += count
        return self.data[self.at - count:self.at]

    def text(self):
        count = self.take("h")
        return None if count < 0 else self.raw(count).decode()

    def array(self, one):
        return [one() for _ in range(max(0, self.take("i")))]


def number(form, value):
    return struct.pack(">" + form, value)


def text(value):
    return number("h", -1) if value is None else number("h", len(value.encode())) + value.encode()


def array(items):
    return number("i", len(items)) + b"".join(items)


class Scram:
    def __init__(self, name):
        self.hash, self.step = name.replace("SCRAM-SHA-", "sha"), 0

    def answer(self, said):
        said = said.decode()
        if self.step == 0:
            self.step, self.first = 1, said[3:]
            fields = dict(field.split("=", 1) for field in self.first.split(","))
            salt = os.urandom(12)
            password = options["users"].get(fields["n"], "nobody's")
            self.salted = hashlib.pbkdf2_hmac(self.hash, password.encode(), salt, 4096)
            self.server = f"r={fields['r']}more,s={base64.b64encode(salt).decode()},i=4096"
            return self.server.encode()
        without, proof = said.rsplit(",p=", 1)
        mac = lambda key, what: hmac.new(key, what, self.hash).digest()
        key = mac(self.salted, b"Client Key")
        message = ",".join([self.first, self.server, without]).encode()
        signature = mac(hashlib.new(self.hash, key).digest(), message)
        if base64.b64decode(proof) != bytes(a ^ b for a, b in zip(key, signature)):
            return None
        return b"v=" + base64.b64encode(mac(mac(self.salted, b"Server Key"), message))


class Handler(socketserver.BaseRequestHandler):
    def setup(self):
        self.mechanism = self.scram = None
        self.known = not options.get("mechanisms")
        if "certificate" in options:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(options["certificate"], options["key"])
            self.request = context.wrap_socket(self.request, server_side=True)

    def read(self, count):
        data = b""
        while len(data) < count:
            more = self.request.recv(count - len(data))
            if not more:
                raise ConnectionError
            data += more
        return data

    def handle(self):
        try:
            while True:
                (size,) = struct.unpack(">i", self.read(4))
                frame = Reader(self.read(size))
                api, version, correlation = frame.take("h"), frame.take("h"), frame.take("i")
                frame.text()
                answer = self.answer(api, version, frame)
                answer = number("i", correlation) + answer
                self.request.sendall(number("i", len(answer)) + answer)
        except (ConnectionError, OSError):
            pass

    def answer(self, api, version, frame):
        if api == VERSIONS:
            apis = array([number("h", key) + number("h", low) + number("h", high) for key, (low, high) in APIS.items()])
            return number("h", UNSUPPORTED if version > 0 else 0) + apis
        if api == HANDSHAKE:
            self.mechanism = frame.text()
            known = self.mechanism in options.get("mechanisms", [])
            self.scram = Scram(self.mechanism) if self.mechanism.startswith("SCRAM") else None
            return number("h", 0 if known else 33) + array([text(name) for name in options.get("mechanisms", [])])
        if api == AUTHENTICATE:
            answered = self.authenticate(frame.raw(frame.take("i")))
            if answered is None:
                return number("h", NOT_AUTHENTICATED) + text("who are you?") + number("i", 0)
            return number("h", 0) + text(None) + number("i", len(answered)) + answered
        if not self.known:
            raise ConnectionError
        if api == METADATA:
            return self.metadata(frame)
        if api == CREATE:
            return self.create(version, frame)
        if api == DESCRIBE:
            return self.describe(version, frame)
        if api == ALTER:
            return self.alter(frame)
        if api == PRODUCER_ID:
            return number("i", 0) + number("h", 0) + number("q", 1) + number("h", 0)
        raise ConnectionError

    def authenticate(self, said):
        if self.scram:
            answered = self.scram.answer(said)
            self.known = self.scram.step == 1 and answered is not None and answered.startswith(b"v=")
            return answered
        if self.mechanism == "PLAIN":
            _, name, password = said.decode().split("\0")
            self.known = options["users"].get(name) == password
        else:
            self.known = said == f"n,,\x01auth=Bearer {options['token']}\x01\x01".encode()
        return b"" if self.known else None

    def metadata(self, frame):
        count = frame.take("i")
        wanted = list(topics) if count < 0 else [frame.text() for _ in range(count)]
        host, port = "localhost", self.server.server_address[1]
        broker = number("i", 1) + text(host) + number("i", port) + text(None)

        def one(name):
            topic = topics.get(name)
            if topic is None:
                return number("h", UNKNOWN_TOPIC) + text(name) + b"\0" + array([])
            replicas = array([number("i", 1)] * topic["replicas"])
            part = lambda place: number("h", 0) + number("i", place) + number("i", 1) + replicas + replicas
            return number("h", 0) + text(name) + b"\0" + array([part(place) for place in range(topic["partitions"])])

        return (number("i", 0) + array([broker]) + text("front") + number("i", 1) + array([one(name) for name in wanted]))

    def create(self, version, frame):
        def one():
            name, partitions, replicas = frame.text(), frame.take("i"), frame.take("h")
            frame.array(lambda: (frame.take("i"), frame.array(lambda: frame.take("i"))))
            configs = dict(frame.array(lambda: (frame.text(), frame.text())))
            if name in topics:
                error = TOPIC_EXISTS
            elif replicas > options.get("brokers", 3):
                error = FEW_BROKERS
            else:
                error = 0
                topics[name] = {"partitions": partitions, "replicas": replicas, "configs": configs}
            return text(name) + number("h", error) + (text(None) if version >= 1 else b"")

        answers = array(frame.array(one))
        return (number("i", 0) if version >= 2 else b"") + answers

    def describe(self, version, frame):
        asked = frame.array(lambda: (frame.take("b"), frame.text(), frame.array(frame.text)))

        def one(kind, name):
            topic = topics.get(name)
            found = dict({"max.message.bytes": "1048588"}, **topic["configs"]) if topic else {}

            def entry(key, value):
                source = 1 if key in topic["configs"] else 5
                return text(key) + text(value) + b"\0" + number("b", source) + b"\0" + array([])

            entries = array([entry(key, value) for key, value in found.items()])
            return number("h", 0 if topic else UNKNOWN_TOPIC) + text(None) + number("b", kind) + text(name) + entries

        assert version == 1, version
        return number("i", 0) + array([one(kind, name) for kind, name, _ in asked])

    def alter(self, frame):
        def one():
            kind, name = frame.take("b"), frame.text()
            # As Kafka does it: all that was set before is gone.
            topics[name]["configs"] = dict(frame.array(lambda: (frame.text(), frame.text())))
            return number("h", 0) + text(None) + number("b", kind) + text(name)

        return number("i", 0) + array(frame.array(one))


class Server(socketserver.ThreadingTCPServer):
    daemon_threads = allow_reuse_address = True

    def handle_error(self, *_):
        pass


server = Server(("127.0.0.1", 0), Handler)
threading.Thread(target=server.serve_forever, daemon=True).start()
print(server.server_address[1], flush=True)
sys.stdin.read()
os._exit(0)
