package millrace;

import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.util.ArrayData;
import org.apache.spark.sql.catalyst.util.MapData;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.Decimal;
import org.apache.spark.unsafe.types.BinaryView;
import org.apache.spark.unsafe.types.CalendarInterval;
import org.apache.spark.unsafe.types.UTF8String;
import org.apache.spark.unsafe.types.VariantVal;

/** A read-only row whose columns are in other rows, so that none is copied. */
final class Line extends InternalRow {
  private final InternalRow[] rows;
  private final int[] rowOf;
  private final int[] placeOf;

  /** Column `at` is column `placeOf[at]` of `rows[rowOf[at]]`; `rows` may change. */
  Line(InternalRow[] rows, int[] rowOf, int[] placeOf) {
    this.rows = rows;
    this.rowOf = rowOf;
    this.placeOf = placeOf;
  }

  public int numFields() {
    return rowOf.length;
  }

  public boolean isNullAt(int at) {
    return rows[rowOf[at]].isNullAt(placeOf[at]);
  }

  public boolean getBoolean(int at) {
    return rows[rowOf[at]].getBoolean(placeOf[at]);
  }

  public byte getByte(int at) {
    return rows[rowOf[at]].getByte(placeOf[at]);
  }

  public short getShort(int at) {
    return rows[rowOf[at]].getShort(placeOf[at]);
  }

  public int getInt(int at) {
    return rows[rowOf[at]].getInt(placeOf[at]);
  }

  public long getLong(int at) {
    return rows[rowOf[at]].getLong(placeOf[at]);
  }

  public float getFloat(int at) {
    return rows[rowOf[at]].getFloat(placeOf[at]);
  }

  public double getDouble(int at) {
    return rows[rowOf[at]].getDouble(placeOf[at]);
  }

  public UTF8String getUTF8String(int at) {
    return rows[rowOf[at]].getUTF8String(placeOf[at]);
  }

  public byte[] getBinary(int at) {
    return rows[rowOf[at]].getBinary(placeOf[at]);
  }

  public BinaryView getBinaryView(int at) {
    return rows[rowOf[at]].getBinaryView(placeOf[at]);
  }

  public CalendarInterval getInterval(int at) {
    return rows[rowOf[at]].getInterval(placeOf[at]);
  }

  public VariantVal getVariant(int at) {
    return rows[rowOf[at]].getVariant(placeOf[at]);
  }

  public ArrayData getArray(int at) {
    return rows[rowOf[at]].getArray(placeOf[at]);
  }

  public MapData getMap(int at) {
    return rows[rowOf[at]].getMap(placeOf[at]);
  }

  public Decimal getDecimal(int at, int precision, int scale) {
    return rows[rowOf[at]].getDecimal(placeOf[at], precision, scale);
  }

  public InternalRow getStruct(int at, int fields) {
    return rows[rowOf[at]].getStruct(placeOf[at], fields);
  }

  public Object get(int at, DataType type) {
    return rows[rowOf[at]].get(placeOf[at], type);
  }

  public void setNullAt(int at) {
    throw new UnsupportedOperationException();
  }

  public void update(int at, Object value) {
    throw new UnsupportedOperationException();
  }

  public InternalRow copy() {
    throw new UnsupportedOperationException();
  }
}
