import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Properties;
import java.util.Set;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutionException;
import java.util.function.Predicate;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.AlterConfigsOptions;
import org.apache.kafka.clients.admin.Config;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.CreateTopicsOptions;
import org.apache.kafka.clients.admin.DescribeClusterOptions;
import org.apache.kafka.clients.admin.DescribeConfigsOptions;
import org.apache.kafka.clients.admin.DescribeTopicsOptions;
import org.apache.kafka.clients.admin.LogDirDescription;
import org.apache.kafka.clients.admin.NewPartitionReassignment;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.clients.admin.TopicDescription;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.ElectionType;
import org.apache.kafka.common.TopicCollection;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.TopicPartitionReplica;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.errors.ElectionNotNeededException;
import org.apache.kafka.common.errors.GroupIdNotFoundException;
import org.apache.kafka.common.errors.InvalidConfigurationException;
import org.apache.kafka.common.errors.InvalidPartitionsException;
import org.apache.kafka.common.errors.InvalidReplicaAssignmentException;
import org.apache.kafka.common.errors.InvalidReplicationFactorException;
import org.apache.kafka.common.errors.InvalidRequestException;
import org.apache.kafka.common.errors.InvalidTopicException;
import org.apache.kafka.common.errors.LogDirNotFoundException;
import org.apache.kafka.common.errors.NoReassignmentInProgressException;
import org.apache.kafka.common.errors.OffsetOutOfRangeException;
import org.apache.kafka.common.errors.PolicyViolationException;
import org.apache.kafka.common.errors.TopicExistsException;
import org.apache.kafka.common.errors.TransactionalIdNotFoundException;
import org.apache.kafka.common.errors.UnknownTopicIdException;
import org.apache.kafka.common.errors.UnknownTopicOrPartitionException;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * Makes every administrative call that a cluster without security supports, and checks the results.
 * Arguments: bootstrap, topic, number of brokers. Each broker gets a replica of the topic.
 */
public class Administration {
    private static final Duration DEADLINE = Duration.ofSeconds(30);
    private static final int PACE_MS = 10;

    static Admin admin;
    static String topic;
    static short replicas;
    static int steps;

    public static void main(String[] args) throws Exception {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", args[0]);
        topic = args[1];
        replicas = Short.parseShort(args[2]);
        try (Admin made = Admin.create(settings)) {
            admin = made;
            topics();
            configs(new ConfigResource(ConfigResource.Type.TOPIC, topic));
            brokerConfigs();
            records(settings);
            placement();
            groupsAndTransactions();
            cluster();
            admin.deleteTopics(List.of(topic)).all().get();
            refused(UnknownTopicOrPartitionException.class,
                    () -> admin.deleteTopics(List.of(topic)).all().get());
        }
        System.out.println("calls " + steps);
    }

    static void check(boolean holds, Object what) {
        steps++;
        if (!holds) {
            throw new IllegalStateException(String.valueOf(what));
        }
    }

    /** Repeats a call until its result is as expected, because brokers see changes with a delay. */
    static <T> T eventually(Callable<T> ask, Predicate<T> holds) throws Exception {
        steps++;
        long end = System.nanoTime() + DEADLINE.toNanos();
        while (true) {
            Object last;
            try {
                T answer = ask.call();
                if (holds.test(answer)) {
                    return answer;
                }
                last = answer;
            } catch (ExecutionException error) {
                last = error.getCause();
            }
            if (System.nanoTime() > end) {
                throw new IllegalStateException("not within " + DEADLINE + " but " + last);
            }
            Thread.sleep(PACE_MS);
        }
    }

    static ConfigEntry shown(ConfigResource resource, String key, Predicate<ConfigEntry> holds)
            throws Exception {
        return eventually(() -> describe(resource).get(key), holds);
    }

    static void refused(Class<? extends Exception> wanted, Callable<?> call) throws Exception {
        steps++;
        try {
            Object got = call.call();
            throw new IllegalStateException("not refused with " + wanted + " but " + got);
        } catch (ExecutionException error) {
            if (error.getCause().getClass() != wanted) {
                throw new IllegalStateException("wanted " + wanted, error.getCause());
            }
        }
    }

    static void topics() throws Exception {
        NewTopic wanted = new NewTopic(topic, 2, replicas).configs(Map.of("retention.ms", "9000"));
        var tried = admin.createTopics(List.of(wanted), new CreateTopicsOptions().validateOnly(true));
        check(tried.numPartitions(topic).get() == 2, "validate only");
        var created = admin.createTopics(List.of(wanted));
        Uuid id = created.topicId(topic).get();
        check(created.config(topic).get().get("retention.ms").value().equals("9000"), "config");
        check(created.replicationFactor(topic).get() == replicas, "replication");
        refused(TopicExistsException.class, () -> admin.createTopics(List.of(wanted)).all().get());
        refused(InvalidTopicException.class,
                () -> create(new NewTopic("a b", 1, replicas)));
        refused(InvalidReplicationFactorException.class,
                () -> create(new NewTopic(topic + "-more", 1, (short) (replicas + 1))));
        refused(InvalidPartitionsException.class,
                () -> create(new NewTopic(topic + "-0", Optional.of(0), Optional.empty())));
        refused(InvalidConfigurationException.class,
                () -> create(new NewTopic(topic + "-c", 1, replicas)
                        .configs(Map.of("retention.ms", "soon"))));
        eventually(() -> admin.listTopics().names().get(), names -> names.contains(topic));
        var all = new DescribeTopicsOptions().includeAuthorizedOperations(true);
        TopicDescription found = eventually(
                () -> admin.describeTopics(List.of(topic), all).allTopicNames().get().get(topic),
                one -> one.topicId().equals(id) && one.partitions().size() == 2);
        check(!found.authorizedOperations().isEmpty(), "operations");
        eventually(() -> admin.describeTopics(TopicCollection.ofTopicIds(List.of(id)))
                        .allTopicIds().get().get(id),
                one -> one.name().equals(topic));
        refused(UnknownTopicIdException.class,
                () -> admin.describeTopics(TopicCollection.ofTopicIds(List.of(new Uuid(7, 7))))
                        .allTopicIds().get());
        refused(UnknownTopicOrPartitionException.class,
                () -> admin.describeTopics(List.of(topic + "-none")).allTopicNames().get());
        admin.createPartitions(Map.of(topic, NewPartitions.increaseTo(3))).all().get();
        refused(InvalidPartitionsException.class,
                () -> admin.createPartitions(Map.of(topic, NewPartitions.increaseTo(3)))
                        .all().get());
    }

    static Object create(NewTopic wanted) throws Exception {
        return admin.createTopics(List.of(wanted)).all().get();
    }

    static Config describe(ConfigResource resource) throws Exception {
        var options = new DescribeConfigsOptions().includeSynonyms(true).includeDocumentation(true);
        return admin.describeConfigs(List.of(resource), options).all().get().get(resource);
    }

    static void alter(ConfigResource resource, String key, String value, AlterConfigOp.OpType how)
            throws Exception {
        var change = new AlterConfigOp(new ConfigEntry(key, value), how);
        admin.incrementalAlterConfigs(Map.of(resource, List.of(change))).all().get();
    }

    static void configs(ConfigResource resource) throws Exception {
        Config all = eventually(() -> describe(resource), one -> one.get("retention.ms").source()
                == ConfigEntry.ConfigSource.DYNAMIC_TOPIC_CONFIG);
        for (ConfigEntry one : all.entries()) {
            check(!one.synonyms().isEmpty() && one.documentation() != null, one);
            check(one.source() != ConfigEntry.ConfigSource.UNKNOWN, one);
            check(one.type() != ConfigEntry.ConfigType.UNKNOWN, one);
        }
        alter(resource, "cleanup.policy", "compact", AlterConfigOp.OpType.APPEND);
        shown(resource, "cleanup.policy", one -> one.value().equals("delete,compact"));
        alter(resource, "cleanup.policy", "compact", AlterConfigOp.OpType.SUBTRACT);
        shown(resource, "cleanup.policy", one -> one.value().equals("delete"));
        alter(resource, "segment.ms", "7000", AlterConfigOp.OpType.SET);
        shown(resource, "segment.ms", one -> one.value().equals("7000"));
        alter(resource, "segment.ms", "", AlterConfigOp.OpType.DELETE);
        shown(resource, "segment.ms", ConfigEntry::isDefault);
        refused(InvalidConfigurationException.class, () -> {
            alter(resource, "segment.ms", "no", AlterConfigOp.OpType.SET);
            return null;
        });
        var change = new AlterConfigOp(
                new ConfigEntry("segment.ms", "8000"), AlterConfigOp.OpType.SET);
        admin.incrementalAlterConfigs(Map.of(resource, List.of(change)),
                new AlterConfigsOptions().validateOnly(true)).all().get();
        shown(resource, "segment.ms", ConfigEntry::isDefault);
    }

    static void brokerConfigs() throws Exception {
        ConfigResource one = new ConfigResource(ConfigResource.Type.BROKER, "1");
        ConfigResource every = new ConfigResource(ConfigResource.Type.BROKER, "");
        alter(one, "message.max.bytes", "2000000", AlterConfigOp.OpType.SET);
        alter(every, "message.max.bytes", "3000000", AlterConfigOp.OpType.SET);
        ConfigEntry found =
                shown(one, "message.max.bytes", entry -> entry.synonyms().size() == 3);
        check(found.source() == ConfigEntry.ConfigSource.DYNAMIC_BROKER_CONFIG, found);
        eventually(() -> describe(every), config -> config.entries().size() == 1);
        alter(one, "message.max.bytes", "", AlterConfigOp.OpType.DELETE);
        shown(one, "message.max.bytes", entry -> entry.source()
                == ConfigEntry.ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG);
        alter(every, "message.max.bytes", "", AlterConfigOp.OpType.DELETE);
        refused(InvalidRequestException.class, () -> {
            alter(one, "log.retention.hours", "1", AlterConfigOp.OpType.SET);
            return null;
        });
    }

    static void records(Properties settings) throws Exception {
        try (KafkaProducer<String, String> producer =
                new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer())) {
            for (long time : new long[] {5, 9, 7}) {
                producer.send(new ProducerRecord<>(topic, 0, time, "k", "v")).get();
            }
        }
        TopicPartition first = new TopicPartition(topic, 0);
        check(offset(first, OffsetSpec.latest()) == 3, "latest");
        check(offset(first, OffsetSpec.earliest()) == 0, "earliest");
        check(offset(first, OffsetSpec.maxTimestamp()) == 1, "largest time");
        check(offset(first, OffsetSpec.forTimestamp(6)) == 1, "by time");
        check(offset(first, OffsetSpec.forTimestamp(10)) == -1, "nothing so new");
        var deleted = admin.deleteRecords(Map.of(first, RecordsToDelete.beforeOffset(2)));
        check(deleted.lowWatermarks().get(first).get().lowWatermark() == 2, "low watermark");
        check(offset(first, OffsetSpec.earliest()) == 2, "start");
        refused(OffsetOutOfRangeException.class,
                () -> admin.deleteRecords(Map.of(first, RecordsToDelete.beforeOffset(9)))
                        .all().get());
        String kept = topic + "-kept";
        create(new NewTopic(kept, 1, replicas).configs(Map.of("cleanup.policy", "compact")));
        TopicPartition compacted = new TopicPartition(kept, 0);
        refused(PolicyViolationException.class,
                () -> admin.deleteRecords(Map.of(compacted, RecordsToDelete.beforeOffset(0)))
                        .all().get());
        check(admin.describeProducers(List.of(first)).all().get().get(first)
                .activeProducers().size() == 1, "producers");
    }

    static long offset(TopicPartition partition, OffsetSpec at) throws Exception {
        return admin.listOffsets(Map.of(partition, at)).partitionResult(partition).get().offset();
    }

    static void placement() throws Exception {
        TopicPartition first = new TopicPartition(topic, 0);
        Map<String, LogDirDescription> folders =
                admin.describeLogDirs(List.of(1)).allDescriptions().get().get(1);
        check(folders.size() == 1, folders);
        var folder = folders.entrySet().iterator().next();
        check(folder.getValue().totalBytes().getAsLong() > 0, "volume");
        TopicPartitionReplica replica = new TopicPartitionReplica(topic, 0, 1);
        check(folder.getValue().replicaInfos().get(first).size() > 0, "size");
        check(admin.describeReplicaLogDirs(List.of(replica)).all().get().get(replica)
                .getCurrentReplicaLogDir().equals(folder.getKey()), "replica");
        refused(LogDirNotFoundException.class,
                () -> admin.alterReplicaLogDirs(Map.of(replica, "/nowhere")).all().get());
        admin.alterReplicaLogDirs(Map.of(replica, folder.getKey())).all().get();
        refused(ElectionNotNeededException.class,
                () -> admin.electLeaders(ElectionType.PREFERRED, Set.of(first)).all().get());
        check(admin.listPartitionReassignments().reassignments().get().isEmpty(), "moving");
        refused(NoReassignmentInProgressException.class,
                () -> admin.alterPartitionReassignments(Map.of(first, Optional.empty()))
                        .all().get());
        refused(InvalidReplicaAssignmentException.class,
                () -> admin.alterPartitionReassignments(Map.of(first,
                        Optional.of(new NewPartitionReassignment(List.of(1, 9))))).all().get());
        admin.alterPartitionReassignments(Map.of(first,
                Optional.of(new NewPartitionReassignment(replicasOf(first))))).all().get();
    }

    static List<Integer> replicasOf(TopicPartition partition) throws Exception {
        return admin.describeTopics(List.of(topic)).allTopicNames().get().get(topic)
                .partitions().get(partition.partition()).replicas().stream()
                .map(node -> node.id()).toList();
    }

    static void groupsAndTransactions() throws Exception {
        String group = "group-" + topic;
        TopicPartition first = new TopicPartition(topic, 0);
        Map<TopicPartition, OffsetAndMetadata> wanted = new HashMap<>();
        wanted.put(first, new OffsetAndMetadata(2, Optional.of(0), "a note"));
        admin.alterConsumerGroupOffsets(group, wanted).all().get();
        check(admin.listConsumerGroupOffsets(group).partitionsToOffsetAndMetadata().get()
                .equals(wanted), "committed");
        check(admin.listConsumerGroups().all().get().stream()
                .anyMatch(one -> one.groupId().equals(group)), "listed");
        check(admin.describeConsumerGroups(List.of(group)).all().get().get(group)
                .members().isEmpty(), "described");
        admin.deleteConsumerGroupOffsets(group, Set.of(first)).all().get();
        refused(GroupIdNotFoundException.class,
                () -> admin.deleteConsumerGroups(List.of(group + "-none")).all().get());
        admin.alterConsumerGroupOffsets(group, wanted).all().get();
        admin.deleteConsumerGroups(List.of(group)).all().get();
        check(admin.listTransactions().all().get() != null, "transactions");
        refused(TransactionalIdNotFoundException.class,
                () -> admin.describeTransactions(List.of("none")).all().get());
    }

    static void cluster() throws Exception {
        var found = admin.describeCluster(
                new DescribeClusterOptions().includeAuthorizedOperations(true));
        check(found.nodes().get().size() == replicas, found.nodes().get());
        check(found.nodes().get().contains(found.controller().get()), found.controller().get());
        check(!found.authorizedOperations().get().isEmpty(), "operations");
        check(found.clusterId().get().length() == 22, found.clusterId().get());
    }
}
