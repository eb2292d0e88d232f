import io.confluent.parallelconsumer.ParallelConsumerOptions;
import io.confluent.parallelconsumer.ParallelConsumerOptions.ProcessingOrder;
import io.confluent.parallelconsumer.ParallelStreamProcessor;
import java.io.RandomAccessFile;
import java.nio.MappedByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.List;
import java.util.Properties;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.kafka.clients.consumer.ConsumerConfig;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/**
 * The JVM's parallel-consumer on its core module: a function called on a thread of its pool for each
 * record, periodic asynchronous commits (its defaults). Arguments and cases as in work.py, which
 * says what each body does.
 */
public final class ParallelConsumerPeer {
    private static final AtomicLong DONE = new AtomicLong();
    private static final Set<Long> FAILED = ConcurrentHashMap.newKeySet();
    private static long records;
    private static long warmUp;
    private static MappedByteBuffer seen;
    private static float[] lateMs = new float[0];

    public static void main(String[] args) throws Exception {
        String body = args[0];
        records = Long.parseLong(args[4]);
        if (body.equals("stragglers")) {
            records -= records / 10_000;
        }
        warmUp = Math.max(1, records / 10);
        if (body.equals("latency")) {
            lateMs = new float[(int) records];
        }
        String shared = System.getenv("BENCH_SEEN");
        if (shared != null) {
            try (RandomAccessFile file = new RandomAccessFile(shared, "rw")) {
                seen = file.getChannel().map(FileChannel.MapMode.READ_WRITE, 0, file.length());
            }
        }
        ParallelStreamProcessor<byte[], byte[]> processor =
                ParallelStreamProcessor.createEosStreamProcessor(options(args[1], args[2], slots(body)));
        processor.subscribe(List.of(args[3]));
        processor.poll(context -> handle(body, context.getSingleRecord().value()));
        Thread.currentThread().join();
    }

    /** Threads: as many as wait, or its default where nothing does. */
    private static int slots(String body) {
        boolean waits = Set.of("io", "mixed", "stragglers").contains(body);
        return waits ? 1_000 : ParallelConsumerOptions.DEFAULT_MAX_CONCURRENCY;
    }

    private static ParallelConsumerOptions<byte[], byte[]> options(
            String order, String servers, int slots) {
        String group = System.getenv("BENCH_GROUP");
        Properties properties = new Properties();
        properties.put(ConsumerConfig.BOOTSTRAP_SERVERS_CONFIG, servers);
        properties.put(
                ConsumerConfig.GROUP_ID_CONFIG, group != null ? group : "bench-" + System.nanoTime());
        properties.put(ConsumerConfig.ENABLE_AUTO_COMMIT_CONFIG, false);
        properties.put(ConsumerConfig.AUTO_OFFSET_RESET_CONFIG, "earliest");
        return ParallelConsumerOptions.<byte[], byte[]>builder()
                .ordering(order.equals("key") ? ProcessingOrder.KEY : ProcessingOrder.UNORDERED)
                .maxConcurrency(slots)
                .defaultMessageRetryDelay(Duration.ofSeconds(1))
                .consumer(
                        new KafkaConsumer<>(
                                properties, new ByteArrayDeserializer(), new ByteArrayDeserializer()))
                .build();
    }

    private static void handle(String body, byte[] value) {
        switch (body) {
            case "io" -> sleep(5);
            case "mixed" -> sleep(number(value) % 6);
            case "stragglers" -> {
                long number = number(value);
                boolean slow = number % 10_000 == 5_000;
                sleep(slow ? 10_000 : 5);
                if (seen != null) {
                    seen.put((int) number, (byte) Math.min(255, seen.get((int) number) + 1));
                }
                if (slow) {
                    return;
                }
            }
            case "retry" -> {
                long number = number(value);
                if (number % 5 == 0 && FAILED.add(number)) {
                    throw new IllegalStateException("the first time");
                }
            }
            case "latency" -> {
                long sent = Long.parseLong(new String(value, 0, 19, StandardCharsets.US_ASCII));
                java.time.Instant now = java.time.Instant.now();
                long at = now.getEpochSecond() * 1_000_000_000L + now.getNano();
                lateMs[(int) Math.min(DONE.get(), lateMs.length - 1)] = (at - sent) / 1e6f;
            }
            default -> { }
        }
        done();
    }

    private static void done() {
        long number = DONE.incrementAndGet();
        if (number == warmUp) {
            tell("began", number, "");
        } else if (number == records) {
            tell("ended", number, latency());
        }
    }

    private static String latency() {
        if (lateMs.length == 0) {
            return "";
        }
        float[] late = java.util.Arrays.copyOfRange(lateMs, (int) warmUp, lateMs.length);
        java.util.Arrays.sort(late);
        return String.format(
                java.util.Locale.ROOT,
                ", \"p50_ms\": %f, \"p99_ms\": %f, \"p999_ms\": %f",
                late[late.length / 2],
                late[(int) (late.length * 0.99)],
                late[(int) (late.length * 0.999)]);
    }

    private static void tell(String word, long number, String more) {
        System.out.println("@" + word + " {\"records\": " + number + more + "}");
        System.out.flush();
    }

    private static long number(byte[] value) {
        long number = 0;
        for (int i = 10; value[i] != ','; i++) {
            number = 10 * number + value[i] - '0';
        }
        return number;
    }

    private static void sleep(long ms) {
        try {
            Thread.sleep(ms);
        } catch (InterruptedException stop) {
            Thread.currentThread().interrupt();
        }
    }
}
