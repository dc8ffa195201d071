package millrace;

import java.util.ArrayList;
import java.util.List;

import org.apache.spark.sql.catalyst.expressions.Abs;
import org.apache.spark.sql.catalyst.expressions.Add;
import org.apache.spark.sql.catalyst.expressions.ArrayRepeat;
import org.apache.spark.sql.catalyst.expressions.BRound;
import org.apache.spark.sql.catalyst.expressions.Cast;
import org.apache.spark.sql.catalyst.expressions.EvalMode;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.FormatString;
import org.apache.spark.sql.catalyst.expressions.IntegralDivide;
import org.apache.spark.sql.catalyst.expressions.Like;
import org.apache.spark.sql.catalyst.expressions.LikeAll;
import org.apache.spark.sql.catalyst.expressions.LikeAny;
import org.apache.spark.sql.catalyst.expressions.Literal;
import org.apache.spark.sql.catalyst.expressions.Multiply;
import org.apache.spark.sql.catalyst.expressions.Not;
import org.apache.spark.sql.catalyst.expressions.NotLikeAll;
import org.apache.spark.sql.catalyst.expressions.NotLikeAny;
import org.apache.spark.sql.catalyst.expressions.NumericEvalContext;
import org.apache.spark.sql.catalyst.expressions.And;
import org.apache.spark.sql.catalyst.expressions.Or;
import org.apache.spark.sql.catalyst.expressions.RLike;
import org.apache.spark.sql.catalyst.expressions.RegExpExtract;
import org.apache.spark.sql.catalyst.expressions.RegExpExtractAll;
import org.apache.spark.sql.catalyst.expressions.RegExpInStr;
import org.apache.spark.sql.catalyst.expressions.RegExpReplace;
import org.apache.spark.sql.catalyst.expressions.Round;
import org.apache.spark.sql.catalyst.expressions.RuntimeReplaceable;
import org.apache.spark.sql.catalyst.expressions.StringLPad;
import org.apache.spark.sql.catalyst.expressions.StringRPad;
import org.apache.spark.sql.catalyst.expressions.StringRepeat;
import org.apache.spark.sql.catalyst.expressions.StringSpace;
import org.apache.spark.sql.catalyst.expressions.StringSplit;
import org.apache.spark.sql.catalyst.expressions.Subtract;
import org.apache.spark.sql.catalyst.expressions.UnaryMinus;
import org.apache.spark.sql.catalyst.expressions.objects.StaticInvoke;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.IntegralType;
import org.apache.spark.sql.types.NumericType;
import org.apache.spark.sql.types.ObjectType;
import org.apache.spark.unsafe.types.UTF8String;
import scala.Option;
import scala.collection.immutable.Nil$;
import scala.collection.immutable.Seq;
import scala.jdk.javaapi.CollectionConverters;
import scala.runtime.AbstractFunction1;

/**
 * Replaces functions of an expression by variants that always end, and whose results fit in memory.
 * In a user's expression, whole numbers that do not fit are also made NULL. Otherwise Spark would
 * let them wrap around, unless it raised for every kind of error in a line.
 *
 * <p>It works on expressions that Spark has resolved, so it covers every notation of a function
 * (`REGEXP`, `rlike()`, `regexp_like`), including functions that Spark rewrites to others.
 */
final class Exchange extends AbstractFunction1 {
  private static final DataType TEXT = DataTypes.StringType;
  private static final DataType PATTERN = new ObjectType(BoundedPattern.class);

  private final boolean isChecked;

  /** `isChecked`: arithmetic is checked for overflow too. */
  Exchange(boolean isChecked) {
    this.isChecked = isChecked;
  }

  public Object apply(Object given) {
    Expression one = (Expression) given;
    if (one instanceof RuntimeReplaceable) {
      Expression meant = ((RuntimeReplaceable) one).replacement();
      Expression exchanged = (Expression) apply(meant);
      return exchanged == meant ? one : exchanged;
    }
    Expression within = (Expression) one.mapChildren(this);
    Expression matching = matching(within);
    if (matching != within) {
      return matching;
    }
    Expression limited = limited(within);
    return limited == within && isChecked ? checked(within) : limited;
  }

  private static Expression matching(Expression one) {
    if (one instanceof RLike) {
      RLike it = (RLike) one;
      return found("find", one, it.left(), pattern(it.right()));
    }
    if (one instanceof Like) {
      Like it = (Like) one;
      return isSimple(it) ? one : found("match", one, it.left(), likePattern(it));
    }
    if (one instanceof LikeAll) {
      return each(one, ((LikeAll) one).child(), ((LikeAll) one).patterns(), true, false);
    }
    if (one instanceof NotLikeAll) {
      return each(one, ((NotLikeAll) one).child(), ((NotLikeAll) one).patterns(), true, true);
    }
    if (one instanceof LikeAny) {
      return each(one, ((LikeAny) one).child(), ((LikeAny) one).patterns(), false, false);
    }
    if (one instanceof NotLikeAny) {
      return each(one, ((NotLikeAny) one).child(), ((NotLikeAny) one).patterns(), false, true);
    }
    if (one instanceof RegExpExtract) {
      RegExpExtract it = (RegExpExtract) one;
      return found("extract", one, it.subject(), pattern(it.regexp()), it.idx());
    }
    if (one instanceof RegExpExtractAll) {
      RegExpExtractAll it = (RegExpExtractAll) one;
      return found("extractAll", one, it.subject(), pattern(it.regexp()), it.idx());
    }
    if (one instanceof RegExpInStr) {
      RegExpInStr it = (RegExpInStr) one;
      return found("position", one, it.subject(), pattern(it.regexp()));
    }
    if (one instanceof RegExpReplace) {
      RegExpReplace it = (RegExpReplace) one;
      return found("replace", one, it.subject(), pattern(it.regexp()), it.rep(), it.pos());
    }
    if (one instanceof StringSplit) {
      StringSplit it = (StringSplit) one;
      return found("split", one, it.str(), pattern(it.regex()), it.limit());
    }
    return one;
  }

  /** Tell whether Spark turns this LIKE into a comparison of a beginning, an end or a part. */
  private static boolean isSimple(Like like) {
    if (!(like.right() instanceof Literal) || ((Literal) like.right()).value() == null) {
      return false;
    }
    String text = ((Literal) like.right()).value().toString();
    if (text.indexOf('_') >= 0 || text.indexOf(like.escapeChar()) >= 0) {
      return false;
    }
    int inside = text.indexOf('%', text.startsWith("%") ? 1 : 0);
    return inside < 0 || inside == text.length() - 1 || text.indexOf('%') == text.lastIndexOf('%');
  }

  private static Expression pattern(Expression text) {
    if (text.foldable()) {
      Object value = text.eval(null);
      return value == null ? null : new Literal(new BoundedPattern(value.toString()), PATTERN);
    }
    return call(Matching.class, PATTERN, "pattern", new Expression[] {text});
  }

  private static Expression likePattern(Like like) {
    Expression[] arguments = {
      like.right(), new Literal(Integer.valueOf(like.escapeChar()), DataTypes.IntegerType)
    };
    if (like.right().foldable()) {
      UTF8String value = (UTF8String) like.right().eval(null);
      return value == null
          ? null
          : new Literal(Matching.likePattern(value, like.escapeChar()), PATTERN);
    }
    return call(Matching.class, PATTERN, "likePattern", arguments);
  }

  /** Return the single LIKEs of a LIKE with several patterns. */
  private static Expression each(
      Expression one, Expression text, Seq patterns, boolean isAll, boolean isNot) {
    Expression together = null;
    for (int at = 0; at < patterns.size(); at++) {
      Expression like = matching(new Like(text, new Literal(patterns.apply(at), TEXT), '\\'));
      Expression next = isNot ? new Not(like) : like;
      if (together == null) {
        together = next;
      } else {
        together = isAll ? (Expression) new And(together, next) : (Expression) new Or(together, next);
      }
    }
    return together == null ? one : together;
  }

  private static Expression found(String method, Expression one, Expression text, Expression pattern) {
    return found(method, one, text, pattern, null, null);
  }

  private static Expression found(
      String method, Expression one, Expression text, Expression pattern, Expression more) {
    return found(method, one, text, pattern, more, null);
  }

  /** Return a call to a method of `Matching`; texts with their own collation are left to Spark. */
  private static Expression found(
      String method,
      Expression one,
      Expression text,
      Expression pattern,
      Expression third,
      Expression fourth) {
    if (pattern == null || !text.dataType().equals(TEXT)) {
      return one;
    }
    List arguments = new ArrayList();
    arguments.add(text);
    arguments.add(pattern);
    if (third != null) {
      arguments.add(third);
    }
    if (fourth != null) {
      arguments.add(fourth);
    }
    return call(
        Matching.class,
        one.dataType(),
        method,
        (Expression[]) arguments.toArray(new Expression[0]));
  }

  private static Expression limited(Expression one) {
    if (one instanceof FormatString) {
      Seq all = one.children();
      List children = new ArrayList();
      children.add(call(Limits.class, TEXT, "format", new Expression[] {(Expression) all.apply(0)}));
      for (int at = 1; at < all.size(); at++) {
        children.add(all.apply(at));
      }
      return (Expression) one.withNewChildren(CollectionConverters.asScala(children).toList());
    }
    if (one instanceof StringRepeat) {
      StringRepeat it = (StringRepeat) one;
      Expression[] both = {it.str(), it.times()};
      return new StringRepeat(it.str(), call(Limits.class, DataTypes.IntegerType, "times", both));
    }
    if (one instanceof StringSpace) {
      return new StringSpace(size(((StringSpace) one).child()));
    }
    if (one instanceof StringLPad) {
      StringLPad it = (StringLPad) one;
      return new StringLPad(it.str(), size(it.len()), it.pad());
    }
    if (one instanceof StringRPad) {
      StringRPad it = (StringRPad) one;
      return new StringRPad(it.str(), size(it.len()), it.pad());
    }
    if (one instanceof ArrayRepeat) {
      ArrayRepeat it = (ArrayRepeat) one;
      return new ArrayRepeat(it.left(), size(it.right()));
    }
    return one;
  }

  private static Expression size(Expression wanted) {
    return wanted.foldable()
        ? wanted
        : call(Limits.class, DataTypes.IntegerType, "size", new Expression[] {wanted});
  }

  private static Expression checked(Expression one) {
    if (one instanceof Cast) {
      Cast it = (Cast) one;
      DataType from = it.child().dataType();
      boolean isNumber = from instanceof NumericType || from.equals(DataTypes.TimestampType);
      return isNumber && it.dataType() instanceof IntegralType && Cast.canTryCast(from, it.dataType())
          ? new Cast(it.child(), it.dataType(), it.timeZoneId(), EvalMode.TRY())
          : one;
    }
    if (!(one.dataType() instanceof IntegralType)) {
      return one;
    }
    if (one instanceof Add) {
      return new Add(((Add) one).left(), ((Add) one).right(), trying(((Add) one).evalContext()));
    }
    if (one instanceof Subtract) {
      Subtract it = (Subtract) one;
      return new Subtract(it.left(), it.right(), trying(it.evalContext()));
    }
    if (one instanceof Multiply) {
      Multiply it = (Multiply) one;
      return new Multiply(it.left(), it.right(), trying(it.evalContext()));
    }
    if (one instanceof IntegralDivide) {
      IntegralDivide it = (IntegralDivide) one;
      return new IntegralDivide(it.left(), it.right(), trying(it.evalContext()));
    }
    if (one instanceof UnaryMinus) {
      return new UnaryMinus(((UnaryMinus) one).child(), true);
    }
    if (one instanceof Abs) {
      return new Abs(((Abs) one).child(), true);
    }
    if (one instanceof Round) {
      return new Round(((Round) one).child(), ((Round) one).scale(), true);
    }
    if (one instanceof BRound) {
      return new BRound(((BRound) one).child(), ((BRound) one).scale(), true);
    }
    return one;
  }

  private static NumericEvalContext trying(NumericEvalContext context) {
    return new NumericEvalContext(EvalMode.TRY(), context.allowDecimalPrecisionLoss());
  }

  /** Return a call of a static method; NULL if an argument is NULL. */
  static Expression call(Class of, DataType type, String method, Expression[] arguments) {
    List all = new ArrayList();
    for (int at = 0; at < arguments.length; at++) {
      all.add(arguments[at]);
    }
    Seq given = CollectionConverters.asScala(all).toList();
    Seq none = (Seq) Nil$.MODULE$;
    return new StaticInvoke(of, type, method, given, none, true, true, true, Option.empty());
  }
}
