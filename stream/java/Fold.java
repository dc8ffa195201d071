package millrace;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.math.BigDecimal;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.Iterator;
import java.util.List;
import java.util.Map;

import net.razorvine.pickle.Pickler;
import org.apache.spark.HashPartitioner;
import org.apache.spark.api.java.JavaPairRDD;
import org.apache.spark.api.java.JavaRDD;
import org.apache.spark.api.java.function.FlatMapFunction;
import org.apache.spark.api.python.PythonRDD;
import org.apache.spark.broadcast.Broadcast;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.execution.SQLExecutionRDD;
import org.apache.spark.unsafe.types.UTF8String;
import scala.Tuple2;
import scala.jdk.javaapi.CollectionConverters;

/**
 * Judges lines and folds them in one pass. Each task counts its lines for all metrics. One task of
 * a second stage combines the cells of a window and writes them as text (`Blocks`).
 *
 * <p>Spark's own grouping would need a query for each key, with its overhead for every line, and
 * would keep the lines in memory in between.
 */
public final class Fold implements FlatMapFunction {
  /** The column of a record's time stamp. */
  private static final int STAMP_AT = 5;

  private static final int IN_FRAME = 1_000;

  private final Broadcast judge;
  private final String spec;
  private final int tasks;

  /** `tasks` is the number of tasks of the second stage. */
  private Fold(Broadcast judge, String spec, int tasks) {
    this.judge = judge;
    this.spec = spec;
    this.tasks = tasks;
  }

  /**
   * Folds lines with a `Judge`, and serves the frames at a local socket; returns the socket's port
   * and secret. Each frame is preceded by its length. The second stage has `tasks` tasks.
   */
  public static Object[] serve(Dataset lines, Broadcast judge, String spec, int tasks)
      throws Exception {
    JavaRDD rows = lines.queryExecution().toRdd().toJavaRDD();
    JavaRDD chunks = rows.mapPartitions(new Fold(judge, spec, tasks));
    // So that expressions find the session's settings in a task, as within Spark's own plans.
    SQLExecutionRDD set = new SQLExecutionRDD(chunks.rdd(), lines.sparkSession().sessionState().conf());
    JavaPairRDD placed = JavaPairRDD.fromJavaRDD(set.toJavaRDD());
    JavaRDD values = placed.partitionBy(new HashPartitioner(tasks)).values();
    return offered(values.mapPartitions(new Blocks(spec)).collect(), spec);
  }

  /**
   * Does the same for the lines between two offsets of the running stream, in this thread, because
   * a job takes longer than some thousand lines.
   */
  public static Object[] serveHere(String starts, String ends, Judge judge, String spec)
      throws Exception {
    SharedKafka.Records records = SharedKafka.records(starts, ends);
    try {
      return foldedHere(records, judge, spec);
    } finally {
      records.close();
    }
  }

  /** Does the same as `serveHere` for rows that are already in the driver. */
  public static Object[] serveRows(InternalRow[] rows, Judge judge, String spec) throws Exception {
    return foldedHere(Arrays.asList(rows).iterator(), judge, spec);
  }

  private static Object[] foldedHere(Iterator lines, Judge judge, String spec) throws Exception {
    List values = new ArrayList();
    Projections projections = judge.take();
    Iterator chunks = new Task(FoldSpec.of(spec), 1).fold(lines, projections);
    while (chunks.hasNext()) {
      values.add(((Tuple2) chunks.next())._2());
    }
    judge.giveBack(projections);
    List frames = new ArrayList();
    for (Iterator all = new Blocks(spec).call(values.iterator()); all.hasNext(); ) {
      frames.add(all.next());
    }
    return offered(frames, spec);
  }

  private static Object[] offered(List found, String spec) throws Exception {
    List frames = new ArrayList(found);
    frames.add(new byte[] {FoldSpec.of(spec).endFrame});
    return PythonRDD.serveIterator(
        CollectionConverters.asScala((Iterator) frames.iterator()), "folded-cells");
  }

  public Iterator call(Object rows) throws Exception {
    Judge shared = (Judge) judge.value();
    Projections projections = shared.take();
    Iterator frames = new Task(FoldSpec.of(spec), tasks).fold((Iterator) rows, projections);
    shared.giveBack(projections);
    return frames;
  }

  /** The lines of one task. */
  private static final class Task implements Cells.Rows {
    private final FoldSpec spec;
    private final FoldSpec.Columns columns;
    private final int tasks;
    private final Cells[] cells;
    private final List frames = new ArrayList();
    private final Map tallies = new HashMap();
    private final List samples = new ArrayList();
    private final List rows = new ArrayList();
    private long sampleOctets = 0;
    private Tally tally = null;
    /** Which groupings count lines of the tally's topic. */
    private boolean[] isActive;
    /** Whether the tally's lines count in `all` only, because they have no time. */
    private boolean isTimeless;

    Task(FoldSpec spec, int tasks) {
      this.spec = spec;
      columns = spec.columns;
      this.tasks = tasks;
      cells = new Cells[spec.groupings.length];
      for (int at = 0; at < cells.length; at++) {
        cells[at] = new Cells(spec.groupings[at], spec.counted);
      }
    }

    Iterator fold(Iterator lines, Projections projections) throws Exception {
      Stopwatch watch = new Stopwatch();
      while (lines.hasNext()) {
        InternalRow record = (InternalRow) lines.next();
        if (!watch.isDue()) {
          take(record, projections.judge(record));
          continue;
        }
        long before = System.nanoTime();
        InternalRow judged = projections.judge(record);
        long between = System.nanoTime();
        take(record, judged);
        watch.line(before, between, System.nanoTime());
      }
      watch.hasRead();
      Chunks chunks = new Chunks(tasks, spec.chunkOctets, frames);
      for (int at = 0; at < cells.length; at++) {
        chunks.of(at);
        cells[at].finish(spec, chunks, this);
        cells[at] = null;
      }
      chunks.close();
      List told = new ArrayList();
      for (Iterator all = tallies.values().iterator(); all.hasNext(); ) {
        told.add(((Tally) all.next()).told());
      }
      send(spec.talliesFrame, told);
      send(spec.samplesFrame, samples);
      send(spec.rowsFrame, rows);
      add(watch.frame(spec.taskFrame));
      return frames.iterator();
    }

    private void take(InternalRow record, InternalRow row) {
      UTF8String topic = row.getUTF8String(columns.topic);
      int partition = row.getInt(columns.partition);
      long offset = row.getLong(columns.offset);
      UTF8String file = row.isNullAt(columns.file) ? null : row.getUTF8String(columns.file);
      UTF8String reason = row.isNullAt(columns.reason) ? null : row.getUTF8String(columns.reason);
      if (tally == null || !tally.isOf(topic, partition, file, reason)) {
        tally = tallyOf(topic, partition, file, reason);
      }
      tally.line(offset);
      if (!record.isNullAt(STAMP_AT)) {
        tally.stamp(record.getLong(STAMP_AT));
      }
      if (reason != null) {
        sample(0, offset, row);
        if (!isTimeless) {
          return;
        }
      }
      long seconds = isTimeless ? Cells.NO_TIME : row.getLong(columns.seconds);
      if (!isTimeless) {
        tally.time(seconds);
      }
      for (int at = 0; at < cells.length; at++) {
        if (isActive[at]) {
          cells[at].take(row, seconds);
        }
      }
      for (int metric = 0; metric < spec.faultyAt.length; metric++) {
        int at = spec.faultyAt[metric];
        if (!row.isNullAt(at) && row.getByte(at) == spec.faulty) {
          tally.faults[metric]++;
          sample(metric + 1, offset, row);
        }
      }
    }

    private Tally tallyOf(UTF8String topic, int partition, UTF8String file, UTF8String reason) {
      Object place = Tally.place(topic, partition, file, reason);
      Tally found = (Tally) tallies.get(place);
      if (found == null) {
        found = new Tally(topic, partition, file, reason, spec.faultyAt.length);
        tallies.put(place, found);
      }
      isTimeless = reason != null && reason.startsWith(spec.timeReason);
      isActive = new boolean[cells.length];
      for (int at = 0; at < cells.length; at++) {
        isActive[at] = spec.groupings[at].hasTopic(topic);
      }
      return found;
    }

    private void sample(int which, long offset, InternalRow row) {
      if (sampleOctets >= spec.sampleOctets || !tally.takesSample(which, spec.samples)) {
        return;
      }
      byte[] line = row.getBinary(columns.sample);
      sampleOctets += line.length;
      Integer number = which == 0 ? null : Integer.valueOf(spec.faultyNumbers[which - 1]);
      samples.add(
          new Object[] {
            tally.topic.toString(), Integer.valueOf(tally.partition), Tally.text(tally.file),
            which == 0 ? Tally.text(tally.reason) : null, number, Long.valueOf(offset), line,
          });
    }

    public void row(FoldSpec.Reading reading, long start, Key key, Cell cell, int place) {
      Object[] parts = new Object[key.parts.length];
      for (int at = 0; at < parts.length; at++) {
        parts[at] = Tally.text(key.parts[at]);
      }
      BigDecimal[] amount = new BigDecimal[3];
      if (cell.hasAmount(place)) {
        amount[0] = cell.amounts[place].sum();
        amount[1] = cell.amounts[place].least();
        amount[2] = cell.amounts[place].most();
      }
      rows.add(
          new Object[] {
            Integer.valueOf(reading.number), Long.valueOf(start), parts,
            Long.valueOf(cell.counts[place]), amount[0], amount[1], amount[2], cell.sketch(),
          });
      if (rows.size() == IN_FRAME) {
        send(spec.rowsFrame, rows);
      }
    }

    /** Put a list into frames, and empty the list. */
    private void send(int kind, List some) {
      for (int from = 0; from < some.size(); from += IN_FRAME) {
        List part = some.subList(from, Math.min(from + IN_FRAME, some.size()));
        add(pickled(kind, part));
      }
      some.clear();
    }

    /** Send a frame through any task of the second stage. */
    private void add(byte[] frame) {
      frames.add(new Tuple2(Integer.valueOf(frames.size() % tasks), frame));
    }

    private static byte[] pickled(int kind, List some) {
      try {
        Octets frame = new Octets();
        frame.octet(kind);
        frame.all(new Pickler(false).dumps(some.toArray()));
        return frame.copy();
      } catch (IOException error) {
        throw new UncheckedIOException(error);
      }
    }
  }
}
