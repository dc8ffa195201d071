package millrace;

import java.math.BigDecimal;
import java.math.BigInteger;

import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.unsafe.types.UTF8String;

/** The exact sum, minimum and maximum of some values. */
abstract class Amount {
  /** Return an empty amount of a `ValueKind` of `stream/fold/compile.py`. */
  static Amount of(boolean isWhole) {
    return isWhole ? (Amount) new Whole() : (Amount) new Exact();
  }

  /** Add the value of a reading in a row. */
  abstract void add(InternalRow row, FoldSpec.Reading reading);

  abstract void add(Amount other);

  abstract BigDecimal sum();

  abstract BigDecimal least();

  abstract BigDecimal most();

  abstract void write(Octets out);

  abstract void read(Cursor in);

  /** Whole numbers. The sum has two halves, because a sum of BIGINTs can exceed a BIGINT. */
  static final class Whole extends Amount {
    private long high;
    private long low;
    private long least = Long.MAX_VALUE;
    private long most = Long.MIN_VALUE;

    void add(InternalRow row, FoldSpec.Reading reading) {
      long value = row.getLong(reading.valueAt);
      high += value >> 32;
      low += value & 0xffffffffL;
      least = Math.min(least, value);
      most = Math.max(most, value);
    }

    void add(Amount other) {
      Whole whole = (Whole) other;
      high += whole.high;
      low += whole.low;
      least = Math.min(least, whole.least);
      most = Math.max(most, whole.most);
    }

    BigDecimal sum() {
      return new BigDecimal(BigInteger.valueOf(high).shiftLeft(32).add(BigInteger.valueOf(low)));
    }

    BigDecimal least() {
      return BigDecimal.valueOf(least);
    }

    BigDecimal most() {
      return BigDecimal.valueOf(most);
    }

    void write(Octets out) {
      out.eightOctets(high);
      out.eightOctets(low);
      out.eightOctets(least);
      out.eightOctets(most);
    }

    void read(Cursor in) {
      high = in.eightOctets();
      low = in.eightOctets();
      least = in.eightOctets();
      most = in.eightOctets();
    }
  }

  /** Decimals; the reading says how many digits those of a row have. */
  static final class Exact extends Amount {
    private BigDecimal sum = BigDecimal.ZERO;
    private BigDecimal least;
    private BigDecimal most;

    void add(InternalRow row, FoldSpec.Reading reading) {
      BigDecimal value =
          row.getDecimal(reading.valueAt, reading.digits, reading.places).toJavaBigDecimal();
      sum = sum.add(value);
      extend(value, value);
    }

    void add(Amount other) {
      Exact exact = (Exact) other;
      sum = sum.add(exact.sum);
      extend(exact.least, exact.most);
    }

    private void extend(BigDecimal low, BigDecimal high) {
      least = least == null || low.compareTo(least) < 0 ? low : least;
      most = most == null || high.compareTo(most) > 0 ? high : most;
    }

    BigDecimal sum() {
      return sum;
    }

    BigDecimal least() {
      return least;
    }

    BigDecimal most() {
      return most;
    }

    void write(Octets out) {
      write(out, sum);
      write(out, least);
      write(out, most);
    }

    void read(Cursor in) {
      sum = number(in);
      least = number(in);
      most = number(in);
    }

    private static void write(Octets out, BigDecimal number) {
      UTF8String text = UTF8String.fromString(number.toPlainString());
      out.varint(text.numBytes());
      out.text(text);
    }

    private static BigDecimal number(Cursor in) {
      return new BigDecimal(in.text((int) in.varint()).toString());
    }
  }
}
