package millrace;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.util.ArrayList;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import java.util.NoSuchElementException;
import java.util.Optional;
import java.util.Set;

import org.apache.spark.TaskContext$;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.connector.catalog.SupportsRead;
import org.apache.spark.sql.connector.catalog.Table;
import org.apache.spark.sql.connector.catalog.TableCapability;
import org.apache.spark.sql.connector.catalog.TableProvider;
import org.apache.spark.sql.connector.expressions.Transform;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.PartitionReader;
import org.apache.spark.sql.connector.read.PartitionReaderFactory;
import org.apache.spark.sql.connector.read.Scan;
import org.apache.spark.sql.connector.read.ScanBuilder;
import org.apache.spark.sql.connector.read.streaming.MicroBatchStream;
import org.apache.spark.sql.connector.read.streaming.Offset;
import org.apache.spark.sql.connector.read.streaming.ReadLimit;
import org.apache.spark.sql.connector.read.streaming.ReportsSourceMetrics;
import org.apache.spark.sql.connector.read.streaming.SupportsAdmissionControl;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/**
 * Spark's Kafka source, with two changes. `admission` decides how much of each partition a batch
 * takes: Spark's own rule, in proportion to the backlog, makes live lines wait for a whole backlog.
 * And the driver can read records of the running stream itself.
 */
public class SharedKafka implements TableProvider {
  private static final String KAFKA = "org.apache.spark.sql.kafka010.KafkaSourceProvider";

  /** Decides the sizes of batches; there is one stream per JVM. */
  private static volatile Admission admission;

  /** The running stream. */
  private static volatile MicroBatchStream running;

  private final TableProvider kafka;

  public SharedKafka() throws Exception {
    ClassLoader loader = Thread.currentThread().getContextClassLoader();
    kafka = (TableProvider) loader.loadClass(KAFKA).getDeclaredConstructor().newInstance();
  }

  /** Use this object to divide every batch that is planned from now on. */
  public static void admitBy(Admission decides) {
    admission = decides;
  }

  /**
   * Return the records between two offsets of the running stream; offsets are in the source's
   * format. A record is valid until the next one is requested. They are read in this thread by the
   * readers of tasks, because a job takes longer than some thousand records. Close the result.
   */
  static Records records(String starts, String ends) {
    MicroBatchStream stream = running;
    InputPartition[] parts =
        stream.planInputPartitions(
            stream.deserializeOffset(starts), stream.deserializeOffset(ends));
    return new Records(parts, stream.createReaderFactory());
  }

  /** Reads one part after another. */
  static final class Records implements Iterator {
    private final InputPartition[] parts;
    private final PartitionReaderFactory factory;
    private int next = 0;
    private PartitionReader reader = null;
    private boolean isThere = false;

    Records(InputPartition[] parts, PartitionReaderFactory factory) {
      this.parts = parts;
      this.factory = factory;
    }

    public boolean hasNext() {
      try {
        while (!isThere && (reader != null || next < parts.length)) {
          if (reader == null) {
            reader = opened(parts[next++]);
          }
          isThere = reader.next();
          if (!isThere) {
            close();
          }
        }
        return isThere;
      } catch (IOException error) {
        throw new UncheckedIOException(error);
      }
    }

    public Object next() {
      if (!hasNext()) {
        throw new NoSuchElementException();
      }
      isThere = false;
      return reader.get();
    }

    void close() throws IOException {
      if (reader != null) {
        reader.close();
        reader = null;
      }
    }

    /** A reader logs the task it belongs to, so there must be one. */
    private PartitionReader opened(InputPartition part) {
      TaskContext$.MODULE$.setTaskContext(TaskContext$.MODULE$.empty());
      try {
        return factory.createReader(part);
      } finally {
        TaskContext$.MODULE$.unset();
      }
    }
  }

  public StructType inferSchema(CaseInsensitiveStringMap options) {
    return kafka.inferSchema(options);
  }

  public Table getTable(StructType schema, Transform[] partitioning, Map properties) {
    return new SharedTable(kafka.getTable(schema, partitioning, properties));
  }

  /** Decides how much of each partition a batch takes. */
  public interface Admission {
    /**
     * Return the ends of a batch that begins at `starts`; topics end at `latest`. All three are in
     * the source's format. Null leaves the decision to the source.
     */
    String ends(String starts, String latest);
  }

  private static class SharedTable implements SupportsRead {
    private final Table table;

    SharedTable(Table table) {
      this.table = table;
    }

    public String name() {
      return table.name();
    }

    public StructType schema() {
      return table.schema();
    }

    public Set<TableCapability> capabilities() {
      return table.capabilities();
    }

    public ScanBuilder newScanBuilder(CaseInsensitiveStringMap options) {
      final Scan scan = ((SupportsRead) table).newScanBuilder(options).build();
      return new ScanBuilder() {
        public Scan build() {
          return new SharedScan(scan);
        }
      };
    }
  }

  private static class SharedScan implements Scan {
    private final Scan scan;

    SharedScan(Scan scan) {
      this.scan = scan;
    }

    public StructType readSchema() {
      return scan.readSchema();
    }

    public String description() {
      return scan.description();
    }

    public MicroBatchStream toMicroBatchStream(String checkpoint) {
      MicroBatchStream stream = scan.toMicroBatchStream(checkpoint);
      running = stream;
      return new SharedStream(stream);
    }
  }

  private static class SharedStream
      implements MicroBatchStream, SupportsAdmissionControl, ReportsSourceMetrics {
    private final MicroBatchStream stream;
    private final SupportsAdmissionControl limited;

    SharedStream(MicroBatchStream stream) {
      this.stream = stream;
      this.limited = (SupportsAdmissionControl) stream;
    }

    public Offset latestOffset(Offset start, ReadLimit limit) {
      Offset latest = limited.latestOffset(start, ReadLimit.allAvailable());
      if (latest == null || admission == null) {
        return latest;
      }
      String ends = admission.ends(start.json(), latest.json());
      return ends == null ? limited.latestOffset(start, limit) : stream.deserializeOffset(ends);
    }

    public ReadLimit getDefaultReadLimit() {
      return limited.getDefaultReadLimit();
    }

    public Offset reportLatestOffset() {
      return limited.reportLatestOffset();
    }

    public Offset latestOffset() {
      return stream.latestOffset();
    }

    public Offset initialOffset() {
      return stream.initialOffset();
    }

    public Offset deserializeOffset(String json) {
      return stream.deserializeOffset(json);
    }

    public InputPartition[] planInputPartitions(Offset start, Offset end) {
      return stream.planInputPartitions(start, end);
    }

    public PartitionReaderFactory createReaderFactory() {
      return stream.createReaderFactory();
    }

    public void commit(Offset end) {
      stream.commit(end);
    }

    public void stop() {
      stream.stop();
    }

    public String toString() {
      return stream.toString();
    }

    public Map<String, String> metrics(Optional<Offset> latestConsumed) {
      return ((ReportsSourceMetrics) stream).metrics(latestConsumed);
    }
  }
}
