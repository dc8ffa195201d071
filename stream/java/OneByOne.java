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
 * A step of judging for a line that is too large for it. It evaluates each expression alone;
 * expressions that use up the stack or the memory are NULL, like those that raise an exception. In
 * Spark such an Error would end the JVM, and the line would have to be searched for.
 */
final class OneByOne {
  /** If less memory than this is free, the one expression did not use all of it. */
  private static final int FREE_MIN = 64 << 20;

  /**
   * How often a single expression must use up the memory before it is blamed. Another thread may do
   * the same at that time with its own line; it then waits here for its turn.
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

  /** Return the result of the step for a line; raises errors that no single expression caused. */
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

  /** Tell whether memory is free again, after the expression has ended. */
  private static boolean isFree() {
    try {
      return new byte[FREE_MIN].length > 0;
    } catch (OutOfMemoryError error) {
      return false;
    }
  }
}
