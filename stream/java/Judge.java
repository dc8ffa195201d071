package millrace;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;

import net.razorvine.pickle.Pickler;
import org.apache.spark.api.python.PythonRDD;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.UnsafeProjection;
import org.apache.spark.sql.execution.ProjectExec;
import org.apache.spark.sql.execution.SparkPlan;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.Decimal;
import org.apache.spark.unsafe.types.UTF8String;
import scala.jdk.javaapi.CollectionConverters;

/**
 * Applies the projections of a plan to rows that are here, as often as there are some: Spark plans
 * a query anew each time that it runs, which for a few hundred lines takes longer than the lines.
 */
public class Judge {
  private static final int ROWS_IN_LIST = 1000;

  private final UnsafeProjection[] steps;
  private final DataType[] types;

  /** `plan` consists of projections over one leaf, whose columns those of the rows are. */
  public Judge(SparkPlan plan) {
    List<UnsafeProjection> found = new ArrayList<UnsafeProjection>();
    types = typesOf(plan);
    SparkPlan at = plan;
    while (at instanceof ProjectExec) {
      ProjectExec project = (ProjectExec) at;
      at = project.child();
      UnsafeProjection step = UnsafeProjection.create(project.projectList(), at.output());
      step.initialize(0);
      found.add(0, step);
    }
    if (at.children().size() != 0) {
      throw new IllegalArgumentException("found " + at.nodeName() + ", expected projections only");
    }
    // Cast, since the compiler knows no type parameters.
    steps = (UnsafeProjection[]) found.toArray(new UnsafeProjection[0]);
  }

  /**
   * Judges the rows and offers them as PySpark takes rows, in pickled lists, at a local socket of
   * which the port and the secret come back. As the answer of a call they would come 40 ms late:
   * its sender waits for an acknowledgement that the receiver delays.
   */
  public synchronized Object[] judge(InternalRow[] rows) throws Exception {
    List<byte[]> lists = new ArrayList<byte[]>();
    for (int from = 0; from < rows.length; from += ROWS_IN_LIST) {
      Object[] judged = new Object[Math.min(ROWS_IN_LIST, rows.length - from)];
      for (int at = 0; at < judged.length; at++) {
        judged[at] = judged(rows[from + at]);
      }
      lists.add(pickled(judged));
    }
    return PythonRDD.serveIterator(
        CollectionConverters.asScala((java.util.Iterator) lists.iterator()), "judged-lines");
  }

  private Object[] judged(InternalRow row) {
    for (int step = 0; step < steps.length; step++) {
      row = steps[step].apply(row);
    }
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
