package millrace;

import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.Map;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import org.apache.spark.unsafe.types.UTF8String;

/** The JSON description of a plan by `stream/fold/groupings.py`. Columns are numbers. */
final class FoldSpec {
  /** The columns of a metric's data; -1 stands for no column. */
  static final class Reading {
    final int number;
    final String name;
    final int verdictAt;
    final int valueAt;
    /** The digits of a decimal value, and how many of them follow the point. */
    final int digits;
    final int places;
    final boolean hasAmount;
    final boolean isWhole;
    final String measure;
    final int[] windows;
    /** The size of the sketch, for a metric that has one. */
    final int sketchSize;
    /** Up to this number of distinct values a cell keeps them all. */
    final int exactMax;
    final boolean isDistinct;
    final boolean isRanked;
    /** Whether it has the window `all`, which also counts lines without a time. */
    final boolean hasAll;

    Reading(JsonNode json) {
      number = json.get("number").asInt();
      name = json.get("name").asText();
      verdictAt = json.get("verdict").asInt();
      valueAt = json.get("value").asInt();
      digits = json.get("digits").asInt();
      places = json.get("places").asInt();
      hasAmount = json.get("has_amount").asBoolean();
      isWhole = json.get("is_whole").asBoolean();
      measure = json.get("measure").asText();
      windows = numbers(json.get("windows_s"));
      sketchSize = json.get("sketch_size").asInt();
      exactMax = json.get("exact_max").asInt();
      isDistinct = measure.equals("unique");
      isRanked = measure.equals("percentile");
      hasAll = hasWindow(0);
    }

    boolean hasWindow(int size) {
      for (int at = 0; at < windows.length; at++) {
        if (windows[at] == size) {
          return true;
        }
      }
      return false;
    }
  }

  /** Metrics that share topics, key and slice. */
  static final class Grouping {
    final UTF8String[] topics;
    final int[] keysAt;
    final int slice;
    final int[] coarser;
    /** The zone whose clock begins windows; null for UTC. */
    final LocalZone zone;
    final Reading[] readings;
    final boolean hasAmounts;
    final boolean isSketched;

    Grouping(JsonNode json) {
      topics = new UTF8String[json.get("topics").size()];
      for (int at = 0; at < topics.length; at++) {
        topics[at] = UTF8String.fromString(item(json.get("topics"), at).asText());
      }
      keysAt = numbers(json.get("keys"));
      slice = json.get("slice_s").asInt();
      coarser = numbers(json.get("coarser_s"));
      zone = json.get("zone").isNull() ? null : new LocalZone(json.get("zone"));
      readings = new Reading[json.get("readings").size()];
      boolean any = false;
      for (int at = 0; at < readings.length; at++) {
        readings[at] = new Reading(item(json.get("readings"), at));
        any |= readings[at].hasAmount;
      }
      hasAmounts = any;
      isSketched = readings[0].isDistinct || readings[0].isRanked;
    }

    /** Return the start of the window that contains a moment; 0 for `all`. */
    long windowStart(long seconds, int size) {
      if (size == 0) {
        return 0;
      }
      return zone == null ? seconds - seconds % size : zone.start(seconds, size);
    }

    boolean hasTopic(UTF8String topic) {
      for (int at = 0; at < topics.length; at++) {
        if (topics[at].equals(topic)) {
          return true;
        }
      }
      return false;
    }
  }

  /** The columns that every judged line has. */
  static final class Columns {
    final int topic;
    final int partition;
    final int offset;
    final int file;
    final int reason;
    final int seconds;
    final int sample;

    Columns(JsonNode json) {
      topic = json.get("topic").asInt();
      partition = json.get("partition").asInt();
      offset = json.get("offset").asInt();
      file = json.get("file").asInt();
      reason = json.get("reason").asInt();
      seconds = json.get("seconds").asInt();
      sample = json.get("sample").asInt();
    }
  }

  final boolean asBlocks;
  final Columns columns;
  /** The first octet of each kind of frame for Python; lists in frames are pickled. */
  final int blockFrame;
  final int rowsFrame;
  final int talliesFrame;
  final int samplesFrame;
  final int taskFrame;
  final int textFrame;
  /** The first octet of the last frame. Without it a broken socket would look like the end. */
  final byte endFrame;
  /** The reason of a line that counts in `all` only begins with this. */
  final UTF8String timeReason;
  /** The values of a verdict. */
  final byte counted;
  final byte faulty;
  /** The octets of the hash in an identity. */
  final int hashOctets;
  /** A text of up to this many octets is contained in its identity. */
  final int textOctets;
  /** The beginning of a block's tuple; it becomes the window's number. */
  final byte[] opening;
  /** Longer texts are not part of a block. */
  final int keyCharacters;
  /** The most samples per reason in a task, and the most octets of all samples. */
  final int samples;
  final int sampleOctets;
  /** A chunk of cells ends at this many octets. */
  final int chunkOctets;
  /** For each metric with a verdict: its number, and the verdict's column. */
  final int[] faultyNumbers;
  final int[] faultyAt;
  final Grouping[] groupings;

  /** How many specifications are kept, because parsing one takes longer than a small batch. */
  private static final int KEPT = 8;

  private static final Map known = new HashMap();

  /** Return the specification in a text. It is immutable, so all folds with that text share it. */
  static synchronized FoldSpec of(String text) throws Exception {
    FoldSpec found = (FoldSpec) known.get(text);
    if (found == null) {
      if (known.size() == KEPT) {
        known.clear();
      }
      found = new FoldSpec(text);
      known.put(text, found);
    }
    return found;
  }

  private FoldSpec(String text) throws Exception {
    JsonNode json = new ObjectMapper().readTree(text);
    asBlocks = json.get("as_blocks").asBoolean();
    columns = new Columns(json.get("columns"));
    JsonNode frames = json.get("frames");
    blockFrame = frames.get("block").asInt();
    rowsFrame = frames.get("rows").asInt();
    talliesFrame = frames.get("tallies").asInt();
    samplesFrame = frames.get("samples").asInt();
    taskFrame = frames.get("task").asInt();
    textFrame = frames.get("text").asInt();
    endFrame = (byte) frames.get("end").asInt();
    timeReason = UTF8String.fromString(json.get("time_reason").asText());
    counted = (byte) json.get("counted").asInt();
    faulty = (byte) json.get("faulty").asInt();
    hashOctets = json.get("hash_octets").asInt();
    textOctets = json.get("text_octets").asInt();
    opening = json.get("opening").asText().getBytes(StandardCharsets.US_ASCII);
    keyCharacters = json.get("key_characters").asInt();
    samples = json.get("samples").asInt();
    sampleOctets = json.get("sample_octets").asInt();
    chunkOctets = json.get("chunk_octets").asInt();
    faultyNumbers = numbers(json.get("faulty_numbers"));
    faultyAt = numbers(json.get("faulty_at"));
    groupings = new Grouping[json.get("groupings").size()];
    for (int at = 0; at < groupings.length; at++) {
      groupings[at] = new Grouping(item(json.get("groupings"), at));
    }
  }

  private static int[] numbers(JsonNode json) {
    int[] numbers = new int[json.size()];
    for (int at = 0; at < numbers.length; at++) {
      numbers[at] = item(json, at).asInt();
    }
    return numbers;
  }

  /** The cast is needed because the compiler sees the older form of this method. */
  private static JsonNode item(JsonNode list, int at) {
    return (JsonNode) list.get(at);
  }
}
