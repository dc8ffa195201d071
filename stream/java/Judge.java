package millrace;

import java.io.Serializable;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;

import net.razorvine.pickle.Pickler;
import org.apache.spark.SparkContext;
import org.apache.spark.api.java.JavaSparkContext;
import org.apache.spark.api.python.PythonRDD;
import org.apache.spark.broadcast.Broadcast;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.UnsafeProjection;
import org.apache.spark.sql.execution.ProjectExec;
import org.apache.spark.sql.execution.SparkPlan;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.Decimal;
import org.apache.spark.unsafe.types.UTF8String;
import scala.collection.immutable.Seq;
import scala.jdk.javaapi.CollectionConverters;

/**
 * The projections of a plan, to be applied to rows as often as there are some, in the driver or in
 * tasks: Spark plans a query anew each time that it runs, which takes as long as some ten thousand
 * lines do.
 */
public final class Judge implements Serializable {
  private static final int ROWS_IN_LIST = 1000;

  /** The expressions of each projection, and the columns that they find. */
  private final Seq[] expressions;
  private final Seq[] columns;
  private final DataType[] types;
  /** Made projections that nobody uses just now; each holds the row that it made last. */
  private transient List idle;

  /** `plan` consists of projections over one leaf, whose columns those of the rows are. */
  public Judge(SparkPlan plan) {
    List found = new ArrayList();
    types = typesOf(plan);
    SparkPlan at = plan;
    while (at instanceof ProjectExec) {
      found.add(0, at);
      at = ((ProjectExec) at).child();
    }
    if (at.children().size() != 0) {
      throw new IllegalArgumentException("found " + at.nodeName() + ", expected projections only");
    }
    expressions = new Seq[found.size()];
    columns = new Seq[found.size()];
    for (int step = 0; step < expressions.length; step++) {
      ProjectExec project = (ProjectExec) found.get(step);
      expressions[step] = project.projectList();
      columns[step] = project.child().output();
    }
  }

  /** Itself, for tasks: an executor gets it once. */
  public Broadcast shared(SparkContext context) {
    return new JavaSparkContext(context).broadcast(this);
  }

  /** The projections, for one task at a time; `giveBack` lets another one have them. */
  synchronized UnsafeProjection[] take() {
    if (idle != null && !idle.isEmpty()) {
      return (UnsafeProjection[]) idle.remove(idle.size() - 1);
    }
    UnsafeProjection[] steps = new UnsafeProjection[expressions.length];
    for (int step = 0; step < steps.length; step++) {
      steps[step] = UnsafeProjection.create(expressions[step], columns[step]);
      steps[step].initialize(0);
    }
    return steps;
  }

  synchronized void giveBack(UnsafeProjection[] steps) {
    if (idle == null) {
      idle = new ArrayList();
    }
    idle.add(steps);
  }

  /** The judged line of a row; it stands until these projections make the next one. */
  static InternalRow judged(UnsafeProjection[] steps, InternalRow row) {
    for (int step = 0; step < steps.length; step++) {
      row = steps[step].apply(row);
    }
    return row;
  }

  /**
   * Judges the rows and offers them as PySpark takes rows, in pickled lists, at a local socket of
   * which the port and the secret come back. As the answer of a call they would come 40 ms late:
   * its sender waits for an acknowledgement that the receiver delays.
   */
  public Object[] judge(InternalRow[] rows) throws Exception {
    UnsafeProjection[] steps = take();
    List lists = new ArrayList();
    for (int from = 0; from < rows.length; from += ROWS_IN_LIST) {
      Object[] judged = new Object[Math.min(ROWS_IN_LIST, rows.length - from)];
      for (int at = 0; at < judged.length; at++) {
        judged[at] = values(judged(steps, rows[from + at]));
      }
      lists.add(pickled(judged));
    }
    giveBack(steps);
    return PythonRDD.serveIterator(
        CollectionConverters.asScala((java.util.Iterator) lists.iterator()), "judged-lines");
  }

  private Object[] values(InternalRow row) {
    Object[] values = new Object[types.length];
    for (int at = 0; at < types.length; at++) {
      Object value = row.isNullAt(at) ? null : row.get(at, types[at]);
      if (value instanceof Decimal) {
        value = ((Decimal) value).toJavaBigDecimal();
      } else if (value instanceof UTF8String) {
        value = value.toString();
      }
      values[at] = value;
    }
    return values;
  }

  private static byte[] pickled(Object[] rows) throws Exception {
    Pickler pickler = new Pickler(false);
    try {
      return pickler.dumps(Arrays.asList(rows));
    } finally {
      pickler.close();
    }
  }

  private static DataType[] typesOf(SparkPlan plan) {
    DataType[] types = new DataType[plan.output().size()];
    for (int at = 0; at < types.length; at++) {
      types[at] = ((Attribute) plan.output().apply(at)).dataType();
    }
    return types;
  }
}
