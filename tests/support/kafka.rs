//! Kafka on this machine: librdkafka's mock cluster, on loopback, with a valve before each broker.
//!
//! It has idempotent producers, leaders that move, injected errors, groups with offsets and rebalances. It has no
//! administration, no TLS, no SASL and no ACLs; and it forgets everything with its handle.

use std::io::{BufRead as _, Write as _};
use std::process::Stdio;
use std::sync::Mutex;
use std::time::Duration;

use rdkafka::consumer::{BaseConsumer, Consumer as _};
use rdkafka::message::{Headers as _, Message as _, OwnedMessage};
use rdkafka::mocking::{MockCluster, MockCoordinator};
use rdkafka::producer::DefaultProducerContext;
use rdkafka::types::{RDKafkaApiKey, RDKafkaRespErr};
use rdkafka::{ClientConfig, Offset, TopicPartitionList};
use symphony_connect::buses::conformance::Condition;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, Command};

use super::valve::Valve;

/// A cluster of three brokers, in a process of its own: what it cannot do ends it, and must not end all tests.
pub struct Kafka {
    /// Where the brokers themselves listen.
    pub direct: String,
    valves: Vec<Valve>,
    talk: Mutex<Talk>,
    _server: std::process::Child,
}

struct Talk {
    to: std::process::ChildStdin,
    from: std::io::Lines<std::io::BufReader<std::process::ChildStdout>>,
}

/// Before each line that the cluster's process says.
const SAYS: &str = "cluster: ";

impl Kafka {
    pub const BROKERS: i32 = 3;

    pub async fn start() -> Self {
        let mut server = std::process::Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "support::kafka::the_mock_cluster", "--ignored", "--nocapture"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("this program once more");
        let to = server.stdin.take().unwrap();
        let from = std::io::BufReader::new(server.stdout.take().unwrap()).lines();
        let mut talk = Talk { to, from };
        let direct = talk.hear();
        let port = |server: &str| server.rsplit(':').next().unwrap().parse().unwrap();
        let ports: Vec<u16> = direct.split(',').map(port).collect();
        let valves = Valve::before_kafka(&ports).await;
        Self { direct, valves, talk: Mutex::new(talk), _server: server }
    }

    /// One of the words of [`obey`], and wait until it is done.
    pub fn tell(&self, command: &str) {
        let mut talk = self.talk.lock().unwrap();
        writeln!(talk.to, "{command}").unwrap();
        assert_eq!(talk.hear(), "done", "{command}");
    }

    pub fn create_topic(&self, name: &str, partitions: i32) {
        self.tell(&format!("topic {name} {partitions}"));
    }

    /// Where the cluster is found through its valves.
    pub fn servers(&self) -> String {
        let ports = self.valves.iter().map(|valve| format!("127.0.0.1:{}", valve.port));
        ports.collect::<Vec<_>>().join(",")
    }

    pub async fn make(&self, condition: Condition) {
        for valve in &self.valves {
            valve.make(condition).await;
        }
    }

    /// All that a topic has, read past the valves from its beginning.
    pub fn reader(&self, topic: &str, partitions: i32) -> Reader {
        Reader::new(&self.direct, topic, partitions)
    }
}

impl Talk {
    fn hear(&mut self) -> String {
        loop {
            let line = self.from.next().expect("the cluster is gone").unwrap();
            // The test's own name may stand before the first.
            if let Some((_, said)) = line.split_once(SAYS) {
                return said.to_owned();
            }
        }
    }
}

/// Not a test: the process behind [`Kafka`]. It ends with its standard input.
#[test]
#[ignore = "the process behind a test"]
fn the_mock_cluster() {
    let cluster = MockCluster::new(Kafka::BROKERS).unwrap();
    println!("{SAYS}{}", cluster.bootstrap_servers());
    for line in std::io::stdin().lines() {
        obey(&cluster, &line.unwrap());
        println!("{SAYS}done");
    }
    // Nobody is left to hear how this "test" went.
    std::process::exit(0);
}

fn obey(cluster: &MockCluster<'static, DefaultProducerContext>, command: &str) {
    let words: Vec<&str> = command.split(' ').collect();
    let number = |text: &str| text.parse::<i32>().unwrap();
    let produce = RDKafkaApiKey::Produce;
    match words[..] {
        ["topic", name, partitions] => {
            cluster.create_topic(name, number(partitions), Kafka::BROKERS).unwrap();
        }
        ["leader", topic, partition, broker] => {
            cluster.partition_leader(topic, number(partition), Some(number(broker))).unwrap();
        }
        ["coordinator", group, broker] => {
            let group = MockCoordinator::Group(group.to_owned());
            cluster.coordinator(group, number(broker)).unwrap();
        }
        ["broker_down", broker] => cluster.broker_down(number(broker)).unwrap(),
        ["broker_up", broker] => cluster.broker_up(number(broker)).unwrap(),
        // Publishes are answered with this error so often.
        ["answer", error, times] => {
            let error = match error {
                "not_enough_replicas" => RDKafkaRespErr::RD_KAFKA_RESP_ERR_NOT_ENOUGH_REPLICAS,
                "not_leader" => RDKafkaRespErr::RD_KAFKA_RESP_ERR_NOT_LEADER_FOR_PARTITION,
                "too_large" => RDKafkaRespErr::RD_KAFKA_RESP_ERR_MSG_SIZE_TOO_LARGE,
                "not_allowed" => RDKafkaRespErr::RD_KAFKA_RESP_ERR_TOPIC_AUTHORIZATION_FAILED,
                other => panic!("{other}"),
            };
            cluster.request_errors(produce, &vec![error; times.parse().unwrap()]);
        }
        ["answer_well"] => cluster.clear_request_errors(produce),
        _ => panic!("{command}"),
    }
}

/// Reads all partitions of a topic, without a group.
pub struct Reader(BaseConsumer);

impl Reader {
    pub fn new(servers: &str, topic: &str, partitions: i32) -> Self {
        let consumer: BaseConsumer = ClientConfig::new()
            .set("bootstrap.servers", servers)
            .set("group.id", "reader")
            .set("enable.auto.commit", "false")
            .create()
            .unwrap();
        let mut all = TopicPartitionList::new();
        for partition in 0..partitions {
            all.add_partition_offset(topic, partition, Offset::Beginning).unwrap();
        }
        consumer.assign(&all).unwrap();
        Self(consumer)
    }

    /// At least so many, if they come within a while; and what is there with them.
    pub fn read(&self, expected: usize) -> Vec<OwnedMessage> {
        let mut found = Vec::new();
        let deadline = std::time::Instant::now() + Duration::from_secs(20);
        loop {
            let enough = found.len() >= expected;
            let wait = Duration::from_millis(if enough { 200 } else { 1_000 });
            match self.0.poll(wait) {
                Some(Ok(message)) => found.push(message.detach()),
                Some(Err(error)) => println!("reading: {error}"),
                None if enough || std::time::Instant::now() > deadline => return found,
                None => {}
            }
        }
    }
}

/// A header's value.
pub fn header<'m>(message: &'m OwnedMessage, name: &str) -> Option<&'m str> {
    let headers = message.headers()?;
    let found = headers.iter().find(|header| header.key == name)?;
    std::str::from_utf8(found.value?).ok()
}

/// What the mock cluster lacks: administration, TLS and SASL, played in Python. It takes no records.
pub struct Front {
    pub port: u16,
    _server: Child,
}

impl Front {
    /// With `certificate` and `key`, `mechanisms`, `users`, `token` and how many `brokers` it says it has.
    pub async fn start(options: &serde_json::Value) -> Self {
        let mut server = Command::new(super::brokers::python_program())
            .args(["-c", include_str!("kafka_front.py"), &options.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .expect("python");
        let mut lines = BufReader::new(server.stdout.take().unwrap()).lines();
        let port = lines.next_line().await.unwrap().expect("its port").parse().unwrap();
        Self { port, _server: server }
    }

    pub fn servers(&self) -> String {
        format!("localhost:{}", self.port)
    }
}
