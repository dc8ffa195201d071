package millrace;

import java.io.Serializable;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.List;

import org.apache.spark.SparkContext;
import org.apache.spark.SparkEnv;
import org.apache.spark.api.java.JavaSparkContext;
import org.apache.spark.broadcast.Broadcast;
import org.apache.spark.serializer.SerializerInstance;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.NamedExpression;
import org.apache.spark.sql.execution.ProjectExec;
import org.apache.spark.sql.execution.SparkPlan;
import scala.collection.immutable.Seq;
import scala.jdk.javaapi.CollectionConverters;
import scala.reflect.ClassTag;
import scala.reflect.ClassTag$;

/**
 * The projections of a plan, which are applied to rows in the driver or in tasks. Spark would plan
 * a query again for each batch, which takes as long as about ten thousand lines.
 */
public final class Judge implements Serializable {
  private static final ClassTag ANY = ClassTag$.MODULE$.Object();

  /**
   * The expressions of each projection, and the columns before it, in Spark's format for tasks.
   * Each task needs its own expressions, because they contain state, such as the variable of a
   * lambda.
   */
  private final byte[] expressions;
  /** For each column: 0 for the record or n for projection n, and its number there. */
  private final int[] rowOf;
  private final int[] placeOf;
  /** For each column of a judged line, its number among all. */
  private final int[] judged;
  /** Projections that exist and are not in use. */
  private transient List idle;

  /** `plan` consists of projections over one leaf, which has the columns of the rows. */
  public Judge(SparkPlan plan) {
    List projects = new ArrayList();
    SparkPlan leaf = plan;
    while (leaf instanceof ProjectExec) {
      projects.add(0, leaf);
      leaf = ((ProjectExec) leaf).child();
    }
    if (leaf.children().size() != 0) {
      throw new IllegalArgumentException(
          "found " + leaf.nodeName() + ", expected projections only");
    }
    Seq[] made = new Seq[projects.size()];
    Seq[] columns = new Seq[projects.size()];
    List known = new ArrayList();
    List places = new ArrayList();
    add(leaf.output(), 0, known, places);
    for (int step = 0; step < made.length; step++) {
      columns[step] = CollectionConverters.asScala(known).toList();
      List added = new ArrayList();
      Seq all = ((ProjectExec) projects.get(step)).projectList();
      for (int at = 0; at < all.size(); at++) {
        // A column that a projection only passes on exists already.
        if (!(all.apply(at) instanceof Attribute)) {
          added.add(all.apply(at));
        }
      }
      made[step] = CollectionConverters.asScala(added).toList();
      add(made[step], step + 1, known, places);
    }
    expressions = written(new Seq[][] {made, columns});
    rowOf = new int[places.size()];
    placeOf = new int[places.size()];
    for (int at = 0; at < rowOf.length; at++) {
      rowOf[at] = ((int[]) places.get(at))[0];
      placeOf[at] = ((int[]) places.get(at))[1];
    }
    judged = new int[plan.output().size()];
    for (int at = 0; at < judged.length; at++) {
      judged[at] = placeOf((NamedExpression) plan.output().apply(at), known);
    }
  }

  /** Note the columns of a row. */
  private static void add(Seq expressions, int row, List known, List places) {
    for (int at = 0; at < expressions.size(); at++) {
      known.add(((NamedExpression) expressions.apply(at)).toAttribute());
      places.add(new int[] {row, at});
    }
  }

  private static int placeOf(NamedExpression column, List known) {
    for (int at = 0; at < known.size(); at++) {
      if (((Attribute) known.get(at)).exprId().equals(column.exprId())) {
        return at;
      }
    }
    throw new IllegalArgumentException("no projection has made " + column.name());
  }

  /** Return this object for tasks; each executor receives it once. */
  public Broadcast shared(SparkContext context) {
    return new JavaSparkContext(context).broadcast(this);
  }

  /** Return projections for one task; `giveBack` makes them available to others. */
  synchronized Projections take() {
    if (idle != null && !idle.isEmpty()) {
      return (Projections) idle.remove(idle.size() - 1);
    }
    Seq[][] read = read(expressions);
    return new Projections(read[0], read[1], rowOf, placeOf, judged);
  }

  synchronized void giveBack(Projections projections) {
    if (idle == null) {
      idle = new ArrayList();
    }
    idle.add(projections);
  }

  private static byte[] written(Seq[][] some) {
    ByteBuffer written = SparkEnv.get().closureSerializer().newInstance().serialize(some, ANY);
    byte[] octets = new byte[written.remaining()];
    written.get(octets);
    return octets;
  }

  private static Seq[][] read(byte[] octets) {
    SerializerInstance serializer = SparkEnv.get().closureSerializer().newInstance();
    ClassLoader loader = Judge.class.getClassLoader();
    return (Seq[][]) serializer.deserialize(ByteBuffer.wrap(octets), loader, ANY);
  }
}
