package millrace;

import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.UnsafeProjection;
import scala.collection.immutable.Seq;

/** The projections of a `Judge`, with the code that Spark makes of them; for one task at a time. */
final class Projections {
  private final UnsafeProjection[] steps;
  private final OneByOne[] oneByOne;
  /** The record, then what each step made of it. */
  private final InternalRow[] rows;
  private final Line known;
  private final Line judged;

  /**
   * Step n makes `made[n]`, which belong to these projections alone, over the columns `columns[n]`,
   * which are the first of `known`; `judged` are places in `known`.
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

  /** The judged line of a record; it stands until the next one is judged, or the record changes. */
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
