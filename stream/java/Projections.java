package millrace;

import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.UnsafeProjection;
import scala.collection.immutable.Seq;

/** The projections of a `Judge` with their generated code; for one task at a time. */
final class Projections {
  private final UnsafeProjection[] steps;
  private final OneByOne[] oneByOne;
  /** The record, then the result of each step. */
  private final InternalRow[] rows;
  private final Line known;
  private final Line judged;

  /**
   * Step n evaluates `made[n]`, which belong only to this object, over the columns `columns[n]`,
   * the first of `known`; `judged` are numbers in `known`.
   */
  Projections(Seq[] made, Seq[] columns, int[] rowOf, int[] placeOf, int[] judged) {
    steps = new UnsafeProjection[made.length];
    oneByOne = new OneByOne[made.length];
    for (int step = 0; step < steps.length; step++) {
      steps[step] = UnsafeProjection.create(made[step], columns[step]);
      steps[step].initialize(0);
      oneByOne[step] = new OneByOne(made[step], columns[step]);
    }
    rows = new InternalRow[1 + steps.length];
    known = new Line(rows, rowOf, placeOf);
    int[] judgedRowOf = new int[judged.length];
    int[] judgedPlaceOf = new int[judged.length];
    for (int at = 0; at < judged.length; at++) {
      judgedRowOf[at] = rowOf[judged[at]];
      judgedPlaceOf[at] = placeOf[judged[at]];
    }
    this.judged = new Line(rows, judgedRowOf, judgedPlaceOf);
  }

  /**
   * Return the judged line of a record; valid until the next call, or until the record changes.
   */
  InternalRow judge(InternalRow record) {
    rows[0] = record;
    for (int step = 0; step < steps.length; step++) {
      try {
        rows[step + 1] = steps[step].apply(known);
      } catch (StackOverflowError error) {
        rows[step + 1] = oneByOne[step].judge(known);
      } catch (OutOfMemoryError error) {
        rows[step + 1] = oneByOne[step].judge(known);
      }
    }
    return judged;
  }
}
