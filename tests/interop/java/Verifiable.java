import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.List;
import java.util.HashMap;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.Callable;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.TimeoutException;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * A verifiable client. It prints the events that tests/harness/verifiable/words.py describes.
 * Arguments: bootstrap, topic.
 */
public final class Verifiable {
    private static final int PARTITIONS = 3;
    private static final int PACE_MS = 10;
    private static final int PER_TRANSACTION = 10;
    private static final int TRANSACTION_PACE_MS = 100;
    private static final int ABORT_EVERY = 5;
    private static final Duration POLL = Duration.ofMillis(200);

    private static String bootstrap;
    private static volatile boolean writes = true;
    private static volatile boolean reads = true;

    public static void main(String[] args) throws Exception {
        bootstrap = args[0];
        String topic = args[1];
        String inTransactions = topic + "-tx";
        List<Thread> writing =
                List.of(start(() -> produce(topic)), start(() -> transact(inTransactions)));
        Thread reading = start(() -> consume(topic, List.of(topic, inTransactions)));
        System.in.read();
        writes = false;
        for (Thread one : writing) {
            one.join();
        }
        say("writing_ended", "");
        while (System.in.read() >= 0) {
            // The harness ends the input to stop the reading.
        }
        reads = false;
        reading.join();
        say("shutdown_complete", "");
    }

    private static Thread start(Callable<Void> work) {
        Thread thread = new Thread(() -> {
            try {
                work.call();
            } catch (Exception error) {
                failed("run", "", error);
                System.exit(1);
            }
        });
        thread.start();
        return thread;
    }

    private static synchronized void say(String name, String fields) {
        System.out.println("{\"name\": \"" + name + "\"" + fields + "}");
    }

    private static void failed(String doing, String topic, Exception error) {
        String message = String.valueOf(error.getMessage()).replaceAll("[\"\\\\\\p{Cntrl}]", " ");
        say("error", String.format(
                ", \"doing\": \"%s\", \"topic\": \"%s\", \"exception\": \"%s\", \"message\": \"%s\"",
                doing, topic, error.getClass().getSimpleName(), message));
    }

    private static Void produce(String topic) throws Exception {
        try (KafkaProducer<String, String> producer = producer(null)) {
            for (int number = 0; writes; number++) {
                send(producer, topic, number, -1);
                Thread.sleep(PACE_MS);
            }
        }
        return null;
    }

    private static void send(
            KafkaProducer<String, String> producer, String topic, int number, int transaction) {
        String value = "" + number;
        producer.send(
                new ProducerRecord<>(topic, number % PARTITIONS, null, value),
                (sent, error) -> {
                    if (error != null) {
                        failed("produce", topic, error);
                        return;
                    }
                    say("producer_send_success", String.format(
                            ", \"topic\": \"%s\", \"value\": \"%s\", \"partition\": %d,"
                                    + " \"offset\": %d, \"transaction\": %d",
                            topic, value, sent.partition(), sent.offset(), transaction));
                });
    }

    private static Void transact(String topic) throws Exception {
        KafkaProducer<String, String> producer = null;
        for (int transaction = 0; writes; transaction++) {
            try {
                if (producer == null) {
                    producer = producer(topic);
                    producer.initTransactions();
                }
                oneTransaction(producer, topic, transaction);
            } catch (KafkaException error) {
                failed("transact", topic, error);
                producer.close(Duration.ZERO);
                producer = null;
            }
            Thread.sleep(TRANSACTION_PACE_MS);
        }
        if (producer != null) {
            producer.close();
        }
        return null;
    }

    private static void oneTransaction(
            KafkaProducer<String, String> producer, String topic, int transaction) {
        producer.beginTransaction();
        for (int index = 0; index < PER_TRANSACTION; index++) {
            send(producer, topic, transaction * PER_TRANSACTION + index, transaction);
        }
        // Without this, an abort would drop unsent records, and their sends would fail.
        producer.flush();
        boolean isKept = transaction % ABORT_EVERY != ABORT_EVERY - 1;
        while (true) {
            try {
                if (isKept) {
                    producer.commitTransaction();
                } else {
                    producer.abortTransaction();
                }
                break;
            } catch (TimeoutException again) {
                failed("again", topic, again);
            }
        }
        say("transaction_ended", String.format(
                ", \"topic\": \"%s\", \"transaction\": %d, \"is_committed\": %s",
                topic, transaction, isKept));
    }

    private static Void consume(String topic, List<String> topics) {
        try (KafkaConsumer<String, String> consumer = consumer(topic + "-readers")) {
            consumer.subscribe(topics, new Assigned());
            while (reads) {
                ConsumerRecords<String, String> records = consumer.poll(POLL);
                for (ConsumerRecord<String, String> one : records) {
                    say("record_data", String.format(
                            ", \"topic\": \"%s\", \"partition\": %d, \"offset\": %d,"
                                    + " \"value\": \"%s\"",
                            one.topic(), one.partition(), one.offset(), one.value()));
                }
                if (!records.isEmpty()) {
                    try {
                        consumer.commitSync();
                    } catch (KafkaException error) {
                        failed("commit", topic, error);
                    }
                }
            }
        }
        return null;
    }

    private static final class Assigned implements ConsumerRebalanceListener {
        @Override
        public void onPartitionsRevoked(Collection<TopicPartition> partitions) {
            // This client keeps no state of partitions.
        }

        @Override
        public void onPartitionsAssigned(Collection<TopicPartition> partitions) {
            List<String> places = new ArrayList<>();
            for (TopicPartition one : partitions) {
                places.add("[\"" + one.topic() + "\", " + one.partition() + "]");
            }
            say("partitions_assigned", ", \"partitions\": [" + String.join(", ", places) + "]");
        }
    }

    /** Returns the settings for TLS and for a login, if the environment has a CA and a user. */
    private static Map<String, String> security() {
        String ca = System.getenv("VERIFIABLE_CA");
        String user = System.getenv("VERIFIABLE_USER");
        if (ca == null) {
            return Map.of();
        }
        Map<String, String> settings = new HashMap<>(Map.of(
                "security.protocol", user == null ? "SSL" : "SASL_SSL",
                "ssl.truststore.type", "PEM",
                "ssl.truststore.location", ca));
        if (user != null) {
            settings.put("sasl.mechanism", "SCRAM-SHA-512");
            settings.put(
                    "sasl.jaas.config",
                    "org.apache.kafka.common.security.scram.ScramLoginModule required"
                            + " username=\"" + user + "\""
                            + " password=\"" + System.getenv("VERIFIABLE_PASSWORD") + "\";");
        }
        return settings;
    }

    private static KafkaProducer<String, String> producer(String transactionalId) {
        Properties settings = new Properties();
        settings.putAll(Map.of("bootstrap.servers", bootstrap, "linger.ms", "5"));
        settings.putAll(security());
        if (transactionalId != null) {
            settings.put("transactional.id", transactionalId);
        }
        return new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer());
    }

    private static KafkaConsumer<String, String> consumer(String group) {
        Properties settings = new Properties();
        settings.putAll(Map.of(
                "bootstrap.servers", bootstrap,
                "group.id", group,
                "isolation.level", "read_committed",
                "auto.offset.reset", "earliest",
                "enable.auto.commit", "false"));
        settings.putAll(security());
        return new KafkaConsumer<>(settings, new StringDeserializer(), new StringDeserializer());
    }
}
