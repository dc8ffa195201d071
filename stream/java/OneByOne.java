package millrace;

import java.util.ArrayList;
import java.util.List;

import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.catalyst.expressions.UnsafeProjection;
import scala.collection.immutable.Seq;
import scala.jdk.javaapi.CollectionConverters;

/**
 * A step of judging for a line that is too much for it: each expression by itself, and those that
 * take all of the stack or of the memory are NULL, as are those that raise an exception. Left to
 * Spark, such an Error ends the JVM, and the line would have to be searched for among all.
 */
final class OneByOne {
  /** So much memory must be free, or it was not the one expression that has taken it. */
  private static final int FREE_MIN = 64 << 20;

  /**
   * So often an expression has to take all memory by itself. Another thread may be about to do the
   * same with a line of its own; it then comes here, too, and waits.
   */
  private static final int TRIES = 3;

  private static final Object TURN = new Object();

  private final Seq made;
  private final Seq columns;
  private UnsafeProjection[] each = null;

  OneByOne(Seq made, Seq columns) {
    this.made = made;
    this.columns = columns;
  }

  /** What the step makes of a line; raises what is no fault of a single expression. */
  InternalRow judge(InternalRow line) {
    synchronized (TURN) {
      if (each == null) {
        each = planned();
      }
      Object[] values = new Object[each.length];
      for (int at = 0; at < values.length; at++) {
        values[at] = value(at, line);
      }
      return new GenericInternalRow(values);
    }
  }

  private UnsafeProjection[] planned() {
    UnsafeProjection[] all = new UnsafeProjection[made.size()];
    for (int at = 0; at < all.length; at++) {
      List one = new ArrayList();
      one.add(made.apply(at));
      all[at] = UnsafeProjection.create(CollectionConverters.asScala(one).toList(), columns);
      all[at].initialize(0);
    }
    return all;
  }

  private Object value(int at, InternalRow line) {
    Expression one = (Expression) made.apply(at);
    for (int tried = 1; ; tried++) {
      try {
        InternalRow row = each[at].apply(line).copy();
        return row.isNullAt(0) ? null : row.get(0, one.dataType());
      } catch (StackOverflowError error) {
        if (!one.nullable()) {
          throw error;
        }
        return null;
      } catch (OutOfMemoryError error) {
        if (!one.nullable() || !isFree()) {
          throw error;
        }
        if (tried == TRIES) {
          return null;
        }
      }
    }
  }

  /** Whether there is memory again, now that the expression has given up. */
  private static boolean isFree() {
    try {
      return new byte[FREE_MIN].length > 0;
    } catch (OutOfMemoryError error) {
      return false;
    }
  }
}
