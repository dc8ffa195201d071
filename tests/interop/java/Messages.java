import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.util.Arrays;
import java.util.HexFormat;
import org.apache.kafka.common.protocol.ApiMessage;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.ObjectSerializationCache;

/**
 * Reads lines of "message version hex", decodes each body, and encodes it again. Prints "ok" if the
 * bytes are the same, otherwise the different bytes or the error.
 */
public class Messages {
    public static void main(String[] args) throws Exception {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        for (String line; (line = lines.readLine()) != null; ) {
            String[] words = line.split(" ");
            byte[] body = HexFormat.of().parseHex(words.length > 2 ? words[2] : "");
            System.out.println(again(words[0], Short.parseShort(words[1]), body));
        }
    }

    static String again(String name, short version, byte[] body) {
        try {
            Class<?> type = Class.forName("org.apache.kafka.common.message." + name + "Data");
            ByteBufferAccessor reader = new ByteBufferAccessor(ByteBuffer.wrap(body));
            ApiMessage message = (ApiMessage) type.getConstructor().newInstance();
            message.read(reader, version);
            if (reader.remaining() > 0) {
                return reader.remaining() + " bytes are left";
            }
            ObjectSerializationCache cache = new ObjectSerializationCache();
            ByteBuffer written = ByteBuffer.allocate(message.size(cache, version));
            message.write(new ByteBufferAccessor(written), cache, version);
            boolean same = Arrays.equals(written.array(), body);
            return same ? "ok" : HexFormat.of().formatHex(written.array()) + " " + message;
        } catch (Exception | LinkageError error) {
            return error.toString();
        }
    }
}
