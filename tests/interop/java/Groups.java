import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Properties;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CyclicBarrier;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.errors.RebalanceInProgressException;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * Reads a topic with each assignor. Members join and leave meanwhile, and one is static. Every
 * record must be read.
 */
public class Groups {
    static final int COUNT = 400;
    static final int MEMBERS = 3;

    public static void main(String[] args) throws Exception {
        String servers = args[0];
        String topic = args[1];
        Properties settings = new Properties();
        settings.put("bootstrap.servers", servers);
        try (KafkaProducer<String, String> producer =
                new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer())) {
            for (int number = 0; number < COUNT; number++) {
                producer.send(new ProducerRecord<>(topic, "k" + number, "" + number));
            }
        }
        for (String assignor : List.of("Range", "RoundRobin", "Sticky", "CooperativeSticky")) {
            read(servers, topic, assignor);
        }
        System.out.println("all read");
    }

    static void read(String servers, String topic, String assignor) throws Exception {
        Set<String> seen = ConcurrentHashMap.newKeySet();
        AtomicBoolean stops = new AtomicBoolean();
        Set<Integer> assigned = ConcurrentHashMap.newKeySet();
        CyclicBarrier together = new CyclicBarrier(MEMBERS);
        List<Throwable> failures = new ArrayList<>();
        List<Thread> members = new ArrayList<>();
        for (int number = 0; number < MEMBERS; number++) {
            int id = number;
            String instance = number == 0 ? "static-" + assignor : null;
            Thread member = new Thread(() -> {
                try {
                    KafkaConsumer<String, String> consumer =
                            join(servers, topic, assignor, instance);
                    try (consumer) {
                        while (!stops.get() || assigned.size() < MEMBERS) {
                            poll(consumer, seen);
                            if (!consumer.assignment().isEmpty()) {
                                assigned.add(id);
                            }
                        }
                        // A consumer that is closed during a rebalance waits for its own join
                        // request, also with Kafka. So wait until all members can leave together.
                        together.await(60, TimeUnit.SECONDS);
                    }
                } catch (Throwable error) {
                    synchronized (failures) {
                        failures.add(error);
                    }
                }
            });
            members.add(member);
            member.start();
        }
        while (seen.size() < COUNT && failures.isEmpty()) {
            Thread.sleep(20);
        }
        stops.set(true);
        for (Thread member : members) {
            member.join();
        }
        if (!failures.isEmpty()) {
            throw new IllegalStateException(failures.get(0));
        }
        System.out.println(assignor);
    }

    static void poll(KafkaConsumer<String, String> consumer, Set<String> seen) {
        for (ConsumerRecord<String, String> one : consumer.poll(Duration.ofMillis(100))) {
            seen.add(one.value());
        }
        try {
            consumer.commitSync();
        } catch (RebalanceInProgressException later) {
            // The next poll takes part in the rebalance.
        }
    }

    static KafkaConsumer<String, String> join(
            String servers, String topic, String assignor, String instance) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", servers);
        settings.put("group.id", topic + "-" + assignor);
        settings.put("auto.offset.reset", "earliest");
        settings.put("max.poll.records", "20");
        settings.put("heartbeat.interval.ms", "500");
        settings.put(
                "partition.assignment.strategy",
                "org.apache.kafka.clients.consumer." + assignor + "Assignor");
        if (instance != null) {
            settings.put("group.instance.id", instance);
        }
        KafkaConsumer<String, String> consumer =
                new KafkaConsumer<>(settings, new StringDeserializer(), new StringDeserializer());
        consumer.subscribe(List.of(topic));
        return consumer;
    }
}
