import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.ProducerFencedException;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * Consumes, transforms and produces in transactions, some of which abort. Each input record must be
 * in the output exactly once.
 */
public class Transactions {
    public static void main(String[] args) throws Exception {
        String servers = args[0];
        String input = args[1];
        String output = args[2];
        int count = 500;
        try (KafkaProducer<String, String> producer = producer(servers, null)) {
            for (int number = 0; number < count; number++) {
                producer.send(new ProducerRecord<>(input, number % 2, null, "" + number));
            }
        }
        transform(servers, input, output, count);
        int seen = 0;
        try (KafkaConsumer<String, String> consumer = consumer(servers, null)) {
            consumer.assign(List.of(new TopicPartition(output, 0), new TopicPartition(output, 1)));
            consumer.seekToBeginning(consumer.assignment());
            boolean[] found = new boolean[count];
            while (seen < count) {
                for (ConsumerRecord<String, String> one : consumer.poll(Duration.ofSeconds(10))) {
                    int number = Integer.parseInt(one.value().substring(1));
                    if (found[number] || one.value().charAt(0) != 'c') {
                        throw new IllegalStateException("not once, or aborted: " + one.value());
                    }
                    found[number] = true;
                    seen++;
                }
            }
            if (!consumer.poll(Duration.ofSeconds(1)).isEmpty()) {
                throw new IllegalStateException("more than was written");
            }
        }
        fence(servers, output);
        System.out.println("transformed " + seen);
    }

    static void transform(String servers, String input, String output, int count) {
        int done = 0;
        int turn = 0;
        try (KafkaProducer<String, String> producer = producer(servers, "tx-" + output);
                KafkaConsumer<String, String> consumer = consumer(servers, "group-" + output)) {
            producer.initTransactions();
            consumer.subscribe(List.of(input));
            while (done < count) {
                ConsumerRecords<String, String> records = consumer.poll(Duration.ofSeconds(10));
                if (records.isEmpty()) {
                    continue;
                }
                boolean commits = turn++ % 3 != 1;
                producer.beginTransaction();
                Map<TopicPartition, OffsetAndMetadata> next = new HashMap<>();
                for (ConsumerRecord<String, String> one : records) {
                    String mark = commits ? "c" : "a";
                    int partition = Integer.parseInt(one.value()) % 2;
                    producer.send(new ProducerRecord<>(output, partition, null, mark + one.value()));
                    next.put(
                            new TopicPartition(one.topic(), one.partition()),
                            new OffsetAndMetadata(one.offset() + 1));
                }
                producer.sendOffsetsToTransaction(next, consumer.groupMetadata());
                if (commits) {
                    producer.commitTransaction();
                    done += records.count();
                } else {
                    producer.abortTransaction();
                    for (TopicPartition partition : records.partitions()) {
                        consumer.seek(partition, records.records(partition).get(0).offset());
                    }
                }
            }
        }
    }

    /** Checks that a second producer with the same transactional id fences the first one. */
    static void fence(String servers, String output) {
        try (KafkaProducer<String, String> old = producer(servers, "fenced-" + output)) {
            old.initTransactions();
            old.beginTransaction();
            try (KafkaProducer<String, String> heir = producer(servers, "fenced-" + output)) {
                heir.initTransactions();
            }
            try {
                old.send(new ProducerRecord<>(output, 0, null, "never"));
                old.commitTransaction();
                throw new IllegalStateException("not fenced");
            } catch (ProducerFencedException expected) {
                System.out.println("fenced");
            }
        }
    }

    static KafkaProducer<String, String> producer(String servers, String transactionalId) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", servers);
        if (transactionalId != null) {
            settings.put("transactional.id", transactionalId);
        }
        return new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer());
    }

    static KafkaConsumer<String, String> consumer(String servers, String group) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", servers);
        settings.put("isolation.level", "read_committed");
        settings.put("enable.auto.commit", "false");
        settings.put("auto.offset.reset", "earliest");
        settings.put("max.poll.records", "50");
        if (group != null) {
            settings.put("group.id", group);
        }
        return new KafkaConsumer<>(settings, new StringDeserializer(), new StringDeserializer());
    }
}
