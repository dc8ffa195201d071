package millrace;

import java.io.IOException;

import org.apache.spark.sql.catalyst.analysis.FunctionRegistry;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.Literal;
import org.apache.spark.sql.catalyst.expressions.TryEval;
import org.apache.spark.sql.catalyst.expressions.objects.StaticInvoke;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.ObjectType;
import scala.Option;
import scala.collection.immutable.Nil$;
import scala.collection.immutable.Seq;
import scala.runtime.AbstractFunction1;

/** Our functions for Spark's SQL; `stream/parse/try_expression.py` describes them. */
public final class Functions {
  /** Register the functions. */
  public static void register(FunctionRegistry registry) {
    add(registry, "millrace_try", new Attempt(false));
    add(registry, "millrace_try_of_user", new Attempt(true));
    DataType texts = DataTypes.createArrayType(DataTypes.StringType, false);
    add(registry, "millrace_common", new OfClass(Access.class, "common", texts));
    add(registry, "millrace_combined", new OfClass(Access.class, "combined", texts));
    add(registry, "millrace_access_time", new OfClass(Access.class, "time", DataTypes.TimestampType));
    add(registry, "millrace_time", new OfClass(Times.class, "time", DataTypes.TimestampType));
    add(registry, "millrace_time_fault", new OfClass(Times.class, "fault", DataTypes.StringType));
    add(registry, "millrace_json", new OfJson());
    add(registry, "millrace_delimited", new OfClass(Delimited.class, "fields", texts));
    add(registry, "millrace_plain", new OfClass(Plain.class, "text", DataTypes.StringType));
    add(registry, "millrace_json_text", new OfClass(Plain.class, "json", DataTypes.StringType));
    add(registry, "millrace_cef", new OfClass(Cef.class, "header", texts));
    add(registry, "millrace_cef_value", new OfClass(Cef.class, "value", DataTypes.StringType));
  }

  private static void add(FunctionRegistry registry, String name, AbstractFunction1 builder) {
    registry.createOrReplaceTempFunction(name, builder, "built-in");
  }

  /**
   * Catalyst's TryEval, which has no name in SQL, over an expression that always ends (`Exchange`).
   */
  private static final class Attempt extends AbstractFunction1 {
    private final Exchange exchange;

    Attempt(boolean isOfUser) {
      exchange = new Exchange(isOfUser);
    }

    public Object apply(Object arguments) {
      return new TryEval((Expression) exchange.apply(((Seq) arguments).apply(0)));
    }
  }

  /** A static method of one of our classes; NULL if an argument is NULL. */
  private static final class OfClass extends AbstractFunction1 {
    private final Class of;
    private final String method;
    private final DataType type;

    OfClass(Class of, String method, DataType type) {
      this.of = of;
      this.method = method;
      this.type = type;
    }

    public Object apply(Object arguments) {
      Seq none = (Seq) Nil$.MODULE$;
      return new StaticInvoke(
          of, type, method, (Seq) arguments, none, true, true, true, Option.empty());
    }
  }

  /** The texts of a line at the paths in a literal; NULL for NULL. */
  private static final class OfJson extends AbstractFunction1 {
    public Object apply(Object arguments) {
      Expression line = (Expression) ((Seq) arguments).apply(0);
      Object paths = ((Expression) ((Seq) arguments).apply(1)).eval(null);
      try {
        Object wanted = new JsonTexts(paths.toString());
        Expression[] both = {line, new Literal(wanted, new ObjectType(JsonTexts.class))};
        DataType texts = DataTypes.createArrayType(DataTypes.StringType, true);
        return Exchange.call(JsonTexts.class, texts, "texts", both);
      } catch (IOException error) {
        throw new IllegalArgumentException("no paths: " + paths, error);
      }
    }
  }
}
