import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.Future;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndTimestamp;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * Writes records with keys, nulls, headers and every codec with an idempotent producer. Reads them
 * back, and checks their order.
 */
public class Records {
    static final int COUNT = 300;

    public static void main(String[] args) throws Exception {
        String servers = args[0];
        String topic = args[1];
        List<String> wanted = new ArrayList<>();
        for (String codec : List.of("none", "gzip", "snappy", "lz4", "zstd")) {
            write(servers, topic, codec, wanted);
        }
        Properties settings = new Properties();
        settings.put("bootstrap.servers", servers);
        settings.put("max.partition.fetch.bytes", "20000");
        try (KafkaConsumer<String, String> consumer =
                new KafkaConsumer<>(settings, new StringDeserializer(), new StringDeserializer())) {
            TopicPartition partition = new TopicPartition(topic, 0);
            consumer.assign(List.of(partition));
            consumer.seekToBeginning(List.of(partition));
            List<String> found = new ArrayList<>();
            while (found.size() < wanted.size()) {
                for (ConsumerRecord<String, String> one : consumer.poll(Duration.ofSeconds(10))) {
                    String header = new String(one.headers().lastHeader("codec").value());
                    found.add(one.key() + "|" + one.value() + "|" + header);
                    if (one.offset() != found.size() - 1) {
                        throw new IllegalStateException("offset " + one.offset());
                    }
                }
            }
            if (!found.equals(wanted)) {
                throw new IllegalStateException("not what was written");
            }
            Map<TopicPartition, OffsetAndTimestamp> times =
                    consumer.offsetsForTimes(Map.of(partition, 1_000_000_000_042L));
            long offset = times.get(partition).offset();
            if (offset != 42) {
                throw new IllegalStateException("time leads to offset " + offset);
            }
            if (consumer.endOffsets(List.of(partition)).get(partition) != wanted.size()
                    || consumer.beginningOffsets(List.of(partition)).get(partition) != 0) {
                throw new IllegalStateException("ends");
            }
        }
        System.out.println("read " + wanted.size());
    }

    static void write(String servers, String topic, String codec, List<String> wanted)
            throws Exception {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", servers);
        settings.put("compression.type", codec);
        settings.put("linger.ms", "5");
        settings.put("batch.size", "3000");
        List<Future<RecordMetadata>> sent = new ArrayList<>();
        try (KafkaProducer<String, String> producer =
                new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer())) {
            for (int number = 0; number < COUNT; number++) {
                String key = number % 3 == 0 ? null : "k" + number;
                String value = number % 7 == 0 ? null : ("v" + number + " ").repeat(20);
                long time = 1_000_000_000_000L + wanted.size();
                ProducerRecord<String, String> record =
                        new ProducerRecord<>(topic, 0, time, key, value);
                record.headers().add("codec", codec.getBytes());
                wanted.add(key + "|" + value + "|" + codec);
                sent.add(producer.send(record));
            }
        }
        for (Future<RecordMetadata> one : sent) {
            one.get();
        }
    }
}
