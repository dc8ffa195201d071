import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.TimeoutException;

/**
 * Consumes, transforms and produces in transactions, until `count` input records are committed.
 * Arguments: bootstrap, source, target, count. Prints "committed N" after each transaction.
 *
 * <p>Every failure ends the transaction. It is aborted, or a new producer with the same
 * transactional id replaces the failed one. Then the consumer goes back to its committed offsets.
 */
public final class Transform {
    private static final int ABORT_EVERY = 7;

    private final String bootstrap;
    private final String target;
    private final KafkaConsumer<byte[], byte[]> consumer;
    private KafkaProducer<byte[], byte[]> producer;
    private int transactions;
    private long committed;

    private Transform(String bootstrap, String source, String target) {
        this.bootstrap = bootstrap;
        this.target = target;
        Properties settings = common();
        settings.put("group.id", "java-transform");
        settings.put("isolation.level", "read_committed");
        settings.put("enable.auto.commit", "false");
        settings.put("auto.offset.reset", "earliest");
        settings.put("max.poll.records", "50");
        settings.put("key.deserializer", "org.apache.kafka.common.serialization.ByteArrayDeserializer");
        settings.put("value.deserializer", "org.apache.kafka.common.serialization.ByteArrayDeserializer");
        consumer = new KafkaConsumer<>(settings);
        consumer.subscribe(List.of(source));
    }

    private Properties common() {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", bootstrap);
        settings.put("reconnect.backoff.ms", "20");
        settings.put("reconnect.backoff.max.ms", "200");
        return settings;
    }

    private KafkaProducer<byte[], byte[]> ready() {
        if (producer == null) {
            Properties settings = common();
            settings.put("transactional.id", "java-transform");
            settings.put("key.serializer", "org.apache.kafka.common.serialization.ByteArraySerializer");
            settings.put("value.serializer", "org.apache.kafka.common.serialization.ByteArraySerializer");
            KafkaProducer<byte[], byte[]> made = new KafkaProducer<>(settings);
            made.initTransactions();
            producer = made;
        }
        return producer;
    }

    private void run(long count) {
        while (committed < count) {
            List<ConsumerRecord<byte[], byte[]>> records = new ArrayList<>();
            consumer.poll(Duration.ofMillis(100)).forEach(records::add);
            if (records.isEmpty()) {
                continue;
            }
            try {
                oneTransaction(records);
            } catch (KafkaException error) {
                System.out.println("gave up: " + error.getClass().getSimpleName());
                recover();
                rewind();
            }
            System.out.println("committed " + committed);
        }
    }

    private void oneTransaction(List<ConsumerRecord<byte[], byte[]>> records) {
        KafkaProducer<byte[], byte[]> writer = ready();
        writer.beginTransaction();
        Map<TopicPartition, OffsetAndMetadata> ends = new HashMap<>();
        for (ConsumerRecord<byte[], byte[]> record : records) {
            String value = record.partition() + ":" + record.offset() + ":" + new String(record.value());
            writer.send(new ProducerRecord<>(target, record.key(), value.getBytes()));
            ends.put(
                    new TopicPartition(record.topic(), record.partition()),
                    new OffsetAndMetadata(record.offset() + 1));
        }
        writer.sendOffsetsToTransaction(ends, consumer.groupMetadata());
        if (++transactions % ABORT_EVERY == 0) {
            writer.abortTransaction();
            rewind();
            return;
        }
        while (true) {
            try {
                writer.commitTransaction();
                break;
            } catch (TimeoutException error) {
                System.out.println("commit again");
            }
        }
        committed += records.size();
    }

    private void recover() {
        if (producer == null) {
            return;
        }
        try {
            producer.abortTransaction();
        } catch (KafkaException error) {
            producer.close(Duration.ZERO);
            producer = null;
        }
    }

    private void rewind() {
        while (true) {
            try {
                Map<TopicPartition, OffsetAndMetadata> known = consumer.committed(consumer.assignment());
                for (Map.Entry<TopicPartition, OffsetAndMetadata> one : known.entrySet()) {
                    consumer.seek(one.getKey(), one.getValue() == null ? 0 : one.getValue().offset());
                }
                return;
            } catch (KafkaException error) {
                System.out.println("rewind again: " + error.getClass().getSimpleName());
            }
        }
    }

    /** The arguments are described at the class. */
    public static void main(String[] arguments) {
        Transform transform = new Transform(arguments[0], arguments[1], arguments[2]);
        transform.run(Long.parseLong(arguments[3]));
        if (transform.producer != null) {
            transform.producer.close();
        }
        transform.consumer.close();
    }
}
