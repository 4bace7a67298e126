/* load.c: the bench's client. One process, one thread, epoll, loopback only.
 *
 *     load --url http://127.0.0.1:8000/v1/responses --body request.json [--streams 100] [--warm 1] [--seconds 4]
 *          [--header 'Authorization: Bearer x']...
 *
 * Keeps --streams requests open, each on its own keep-alive connection: when a response ends, the same request is
 * sent again. It reads whatever event shape comes back and looks for the markers of upstream.c (marker.h), so
 * every protocol is measured with the same program. "window open" goes to stderr when the warm-up is over; after
 * --seconds more, one line of JSON goes to stdout:
 *
 *   of the window  deltas, reasoning, content    deltas seen for the first time, in all and of each kind
 *                  requests                      responses that ended as they should
 *                  reads, bytes                  of response bodies
 *                  latency_us                    from the upstream's write to our read, each delta
 *                  first_delta_us                from our request to the first delta, each response
 *   of the run     lost         deltas that never came, though a later one or the response's end did
 *                  misordered   deltas that came after a later one, or reasoning that came after content
 *                  foreign      deltas of another stream
 *                  repeated     markers seen again: the full text that many protocols send when a part is done
 *                  errors       no connection, a status other than 200, an early end, a response without deltas
 *   at its end     live         streams that were in the middle of a response
 *
 * After that line the streams go on for a moment, uncounted, so that whoever reads a process's CPU time then
 * still sees it at work rather than tidying up. Everything ends by itself.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <getopt.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "marker.h"

#define HEAD_ROOM 8192
#define READ_ROOM (256 * 1024)
#define EVENTS_PER_TURN 512
#define RETRY_US 100000 /* after an error, so that a server that refuses is not asked in a hot loop */
#define AFTERGLOW_US 200000
#define COMPLAINTS 2

enum phase { CLOSED, CONNECTING, SENDING, READING_HEAD, READING_BODY };
enum framing { CHUNKED, COUNTED, UNTIL_CLOSE };
enum chunk_part { CHUNK_SIZE, CHUNK_EXTENSION, CHUNK_DATA, CHUNK_DATA_END, TRAILER };

struct stream {
    int fd;
    enum phase phase;
    uint64_t retry_at;
    size_t sent;
    uint64_t asked_at;

    char head[HEAD_ROOM];
    size_t head_length;
    enum framing framing;
    bool close_after;
    uint64_t left; /* of the body, or of the chunk */
    enum chunk_part chunk_part;
    size_t line_length; /* of the trailer line being read */

    char carry[MARKER_LENGTH]; /* the end of the text so far, where a marker may have begun */
    size_t carry_length;
    bool known; /* a marker was seen, and the next three are set */
    uint32_t number, total;
    uint32_t highest;
    uint32_t seen_count;
    bool content_began;
    uint64_t seen[(MAX_DELTAS + 64) / 64];
};

/* ---- what is counted -------------------------------------------------------------------------------------- */

/* Latencies in microseconds: exact below 128, then 128 steps to each power of two (under 1 % of error). */
#define STEPS 128
#define BUCKETS (40 * STEPS)
struct histogram {
    uint64_t count[BUCKETS];
    uint64_t total;
};

static bool window_open;
static uint64_t reasoning_count, content_count, request_count, read_count, byte_count;
static uint64_t lost, misordered, foreign, repeated, errors;
static struct histogram latency, first_delta;
static int complaints;

static unsigned bucket_of(uint64_t us)
{
    if (us < STEPS)
        return (unsigned)us;
    int shift = 56 - __builtin_clzll(us); /* 0 for 128 to 255 */
    unsigned bucket = (unsigned)(shift + 1) * STEPS + (unsigned)((us >> shift) & (STEPS - 1));
    return bucket < BUCKETS ? bucket : BUCKETS - 1;
}

static uint64_t value_of(unsigned bucket)
{
    if (bucket < STEPS)
        return bucket;
    unsigned shift = bucket / STEPS - 1;
    return ((uint64_t)(STEPS + bucket % STEPS) << shift) + ((1ull << shift) >> 1);
}

static void note(struct histogram *h, uint64_t us)
{
    h->count[bucket_of(us)]++;
    h->total++;
}

static uint64_t percentile(const struct histogram *h, double share)
{
    uint64_t rank = (uint64_t)(share * (double)h->total), below = 0;
    for (unsigned bucket = 0; bucket < BUCKETS; bucket++) {
        below += h->count[bucket];
        if (below > rank)
            return value_of(bucket);
    }
    return 0;
}

/* ---- markers ---------------------------------------------------------------------------------------------- */

static bool get_hex(const char *at, int digits, uint64_t *value)
{
    uint64_t v = 0;
    for (; digits--; at++) {
        if (*at >= '0' && *at <= '9')
            v = v << 4 | (uint64_t)(*at - '0');
        else if (*at >= 'a' && *at <= 'f')
            v = v << 4 | (uint64_t)(*at - 'a' + 10);
        else
            return false;
    }
    *value = v;
    return true;
}

struct marker {
    bool content;
    uint64_t stream, delta, total, sent_at;
};

static bool read_marker(const char *at, struct marker *m)
{
    m->content = at[1] == 'c';
    return (m->content || at[1] == 'r') && at[MARKER_END_AT] == MARKER_EDGE &&
           get_hex(at + MARKER_STREAM_AT, MARKER_STREAM_DIGITS, &m->stream) &&
           get_hex(at + MARKER_DELTA_AT, MARKER_DELTA_DIGITS, &m->delta) &&
           get_hex(at + MARKER_TOTAL_AT, MARKER_TOTAL_DIGITS, &m->total) &&
           get_hex(at + MARKER_TIME_AT, MARKER_TIME_DIGITS, &m->sent_at) && m->delta < m->total;
}

static void first_marker(struct stream *s, const struct marker *m, uint64_t now)
{
    s->known = true;
    s->number = (uint32_t)m->stream;
    s->total = (uint32_t)m->total;
    s->highest = s->seen_count = 0;
    s->content_began = false;
    memset(s->seen, 0, (m->total + 63) / 64 * sizeof s->seen[0]);
    if (window_open)
        note(&first_delta, now - s->asked_at);
}

static void count_marker(struct stream *s, const struct marker *m, uint64_t now)
{
    if (!s->known)
        first_marker(s, m, now);
    if (m->stream != s->number || m->total != s->total) {
        foreign++;
        return;
    }
    uint64_t *word = &s->seen[m->delta / 64], bit = 1ull << (m->delta % 64);
    if (*word & bit) {
        repeated++;
        return;
    }
    *word |= bit;
    s->seen_count++;
    if (m->delta < s->highest || (!m->content && s->content_began))
        misordered++;
    if (m->delta > s->highest)
        s->highest = (uint32_t)m->delta;
    if (m->content)
        s->content_began = true;
    if (!window_open)
        return;
    if (m->content)
        content_count++;
    else
        reasoning_count++;
    note(&latency, now > m->sent_at ? now - m->sent_at : 0);
}

/* Looks at text that came from the body; `text` has MARKER_LENGTH bytes of room before it for the carry. */
static void scan(struct stream *s, char *text, size_t length, uint64_t now)
{
    char *at = text - s->carry_length, *end = text + length;
    memcpy(at, s->carry, s->carry_length);
    s->carry_length = 0;
    while ((at = memchr(at, MARKER_EDGE, (size_t)(end - at)))) {
        if (end - at < MARKER_LENGTH) {
            s->carry_length = (size_t)(end - at);
            memcpy(s->carry, at, s->carry_length);
            return;
        }
        struct marker marker;
        if (read_marker(at, &marker)) {
            count_marker(s, &marker, now);
            at += MARKER_LENGTH;
        } else {
            at++;
        }
    }
}

/* ---- requests --------------------------------------------------------------------------------------------- */

static struct sockaddr_in server;
static char *request;
static size_t request_length;
static int poller;
static int closed_count; /* streams to open: none, mostly, and then nobody looks for them */

static void watch(struct stream *s, uint32_t events, int operation)
{
    struct epoll_event event = {.events = events, .data.ptr = s};
    epoll_ctl(poller, operation, s->fd, &event);
}

static void complain(const char *what, const char *detail, size_t length)
{
    if (complaints++ < COMPLAINTS)
        fprintf(stderr, "load: %s: %.*s\n", what, (int)(length < 400 ? length : 400), detail);
}

static void close_stream(struct stream *s, uint64_t retry_at)
{
    close(s->fd);
    s->fd = -1;
    s->phase = CLOSED;
    s->retry_at = retry_at;
    closed_count++;
}

static void fail(struct stream *s, const char *why)
{
    errors++;
    complain("a stream failed", why, strlen(why));
    if (s->known)
        lost += s->total - s->seen_count;
    s->known = false;
    close_stream(s, now_us() + RETRY_US);
}

static void send_request(struct stream *s)
{
    while (s->sent < request_length) {
        ssize_t sent = send(s->fd, request + s->sent, request_length - s->sent, MSG_NOSIGNAL);
        if (sent < 0 && errno == EAGAIN) {
            if (s->phase != SENDING)
                watch(s, EPOLLIN | EPOLLOUT, EPOLL_CTL_MOD);
            s->phase = SENDING;
            return;
        }
        if (sent < 0)
            return fail(s, "connection lost while sending");
        s->sent += (size_t)sent;
    }
    if (s->phase == CONNECTING || s->phase == SENDING)
        watch(s, EPOLLIN, EPOLL_CTL_MOD);
    s->phase = READING_HEAD;
}

static void ask(struct stream *s)
{
    s->sent = s->head_length = s->carry_length = 0;
    s->known = false;
    s->asked_at = now_us();
    send_request(s);
}

static void open_stream(struct stream *s)
{
    int on = 1;
    closed_count--;
    s->fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (s->fd < 0)
        return fail(s, "no socket left");
    setsockopt(s->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    if (connect(s->fd, (struct sockaddr *)&server, sizeof server) && errno != EINPROGRESS)
        return fail(s, "cannot connect");
    s->phase = CONNECTING;
    watch(s, EPOLLOUT, EPOLL_CTL_ADD);
}

static void connected(struct stream *s)
{
    int error = 0;
    socklen_t length = sizeof error;
    getsockopt(s->fd, SOL_SOCKET, SO_ERROR, &error, &length);
    if (error)
        return fail(s, strerror(error));
    ask(s);
}

static void response_over(struct stream *s)
{
    if (!s->known)
        return fail(s, "a response without a delta");
    lost += s->total - s->seen_count;
    s->known = false;
    if (window_open)
        request_count++;
    if (s->close_after)
        close_stream(s, 0);
    else
        ask(s);
}

/* ---- responses -------------------------------------------------------------------------------------------- */

static const char *header(const char *head, const char *name)
{
    const char *at = strcasestr(head, name);
    if (!at)
        return NULL;
    at += strlen(name);
    return at + strspn(at, " \t");
}

/* Reads the head in s->head, which ends in NUL. False: not a response that we can use. */
static bool understand_head(struct stream *s)
{
    const char *value;
    if (strncmp(s->head, "HTTP/1.1 200", 12) && strncmp(s->head, "HTTP/1.0 200", 12))
        return false;
    s->close_after = (value = header(s->head, "\r\nConnection:")) && !strncasecmp(value, "close", 5);
    s->framing = UNTIL_CLOSE;
    s->left = 0;
    if ((value = header(s->head, "\r\nTransfer-Encoding:")) && !strncasecmp(value, "chunked", 7)) {
        s->framing = CHUNKED;
        s->chunk_part = CHUNK_SIZE;
    } else if ((value = header(s->head, "\r\nContent-Length:"))) {
        s->framing = COUNTED;
        s->left = strtoull(value, NULL, 10);
    }
    return true;
}

/* Takes chunk framing out of `bytes` and packs the text at `to` (which may be the same place). Returns the text's
 * length; `*over` is set when the last chunk and the trailer have passed, `*broken` when it is no chunk framing. */
static size_t unchunk(struct stream *s, const char *bytes, const char *end, char *to, bool *over, bool *broken)
{
    char *text = to;
    while (bytes < end && !*over) {
        char byte = *bytes;
        uint64_t digit;
        switch (s->chunk_part) {
        case CHUNK_SIZE:
            byte |= byte >= 'A' && byte <= 'F' ? 0x20 : 0;
            if (get_hex(&byte, 1, &digit)) {
                s->left = s->left << 4 | digit;
                bytes++;
            } else {
                s->chunk_part = CHUNK_EXTENSION;
            }
            break;
        case CHUNK_EXTENSION: /* what stands between the size and the end of its line, mostly nothing */
            bytes++;
            if (byte == '\n') {
                s->chunk_part = s->left ? CHUNK_DATA : TRAILER;
                s->line_length = 0;
            }
            break;
        case CHUNK_DATA: {
            size_t here = (size_t)(end - bytes) < s->left ? (size_t)(end - bytes) : (size_t)s->left;
            memmove(to, bytes, here);
            to += here;
            bytes += here;
            s->left -= here;
            if (!s->left)
                s->chunk_part = CHUNK_DATA_END;
            break;
        }
        case CHUNK_DATA_END:
            bytes++;
            if (byte == '\n')
                s->chunk_part = CHUNK_SIZE;
            else if (byte != '\r')
                *broken = true;
            break;
        case TRAILER:
            bytes++;
            if (byte == '\n' && !s->line_length)
                *over = true;
            else if (byte == '\n')
                s->line_length = 0;
            else if (byte != '\r')
                s->line_length++;
            break;
        }
    }
    return (size_t)(to - text);
}

static void take_body(struct stream *s, char *bytes, size_t length, uint64_t now)
{
    bool over = false, broken = false;
    if (s->framing == CHUNKED) {
        length = unchunk(s, bytes, bytes + length, bytes, &over, &broken);
    } else if (s->framing == COUNTED) {
        s->left -= length < s->left ? length : s->left;
        over = !s->left;
    }
    if (window_open) {
        read_count++;
        byte_count += length;
    }
    scan(s, bytes, length, now);
    if (broken)
        fail(s, "broken chunk framing");
    else if (over)
        response_over(s);
}

static void take_head(struct stream *s, char *bytes, size_t length, uint64_t now)
{
    size_t here = HEAD_ROOM - 1 - s->head_length;
    here = length < here ? length : here;
    memcpy(s->head + s->head_length, bytes, here);
    size_t before = s->head_length;
    s->head_length += here;
    char *end = memmem(s->head, s->head_length, "\r\n\r\n", 4);
    if (!end) {
        if (s->head_length == HEAD_ROOM - 1)
            fail(s, "a response head that does not end");
        return;
    }
    size_t taken = (size_t)(end + 4 - s->head) - before;
    end[2] = '\0';
    if (!understand_head(s)) {
        s->head[strcspn(s->head, "\r")] = '\0';
        complain(s->head, bytes + taken, length - taken);
        return fail(s, "not 200");
    }
    s->phase = READING_BODY;
    take_body(s, bytes + taken, length - taken, now);
}

static void read_stream(struct stream *s)
{
    static char buffer[MARKER_LENGTH + READ_ROOM];
    char *bytes = buffer + MARKER_LENGTH;
    ssize_t got = recv(s->fd, bytes, READ_ROOM, 0);
    uint64_t now = now_us();
    if (got > 0 && s->phase == READING_HEAD)
        take_head(s, bytes, (size_t)got, now);
    else if (got > 0 && s->phase == READING_BODY)
        take_body(s, bytes, (size_t)got, now);
    else if (got < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    else if (got == 0 && s->phase == READING_BODY && s->framing == UNTIL_CLOSE) {
        s->close_after = true;
        response_over(s);
    } else
        fail(s, got > 0 ? "an answer before the question" : "the connection was closed early");
}

static void handle(const struct epoll_event *event)
{
    struct stream *s = event->data.ptr;
    if (s->phase == CONNECTING)
        connected(s);
    else if (event->events & (EPOLLIN | EPOLLHUP | EPOLLERR))
        read_stream(s);
    else if (s->phase == SENDING)
        send_request(s);
}

/* ---- the run ---------------------------------------------------------------------------------------------- */

static struct stream *streams;
static int stream_count = 1;

static void open_closed(uint64_t now)
{
    for (int at = 0; closed_count && at < stream_count; at++)
        if (streams[at].phase == CLOSED && streams[at].retry_at <= now)
            open_stream(&streams[at]);
}

static void run_until(uint64_t end)
{
    static struct epoll_event events[EVENTS_PER_TURN];
    for (uint64_t now; (now = now_us()) < end;) {
        open_closed(now);
        int patience = end - now > 20000 ? 20 : (int)((end - now) / 1000) + 1;
        int count = epoll_wait(poller, events, EVENTS_PER_TURN, patience);
        for (int at = 0; at < count; at++)
            handle(&events[at]);
    }
}

static void report(double seconds)
{
    unsigned live = 0;
    uint64_t missing = lost;
    for (int at = 0; at < stream_count; at++)
        if (streams[at].phase == READING_BODY && streams[at].known) {
            live++;
            missing += streams[at].highest + 1 - streams[at].seen_count;
        }
    uint64_t deltas = reasoning_count + content_count;
    printf("{\"streams\": %d, \"seconds\": %.3f, \"deltas\": %lu, \"deltas_per_s\": %.1f, \"reasoning\": %lu, "
           "\"content\": %lu, \"requests\": %lu, \"reads\": %lu, \"bytes\": %lu, \"lost\": %lu, \"misordered\": %lu, "
           "\"foreign\": %lu, \"repeated\": %lu, \"errors\": %lu, \"live\": %u, "
           "\"latency_us\": {\"p50\": %lu, \"p99\": %lu}, \"first_delta_us\": {\"p50\": %lu, \"p99\": %lu}}\n",
           stream_count, seconds, deltas, (double)deltas / seconds, reasoning_count, content_count, request_count,
           read_count, byte_count, missing, misordered, foreign, repeated, errors, live, percentile(&latency, 0.5),
           percentile(&latency, 0.99), percentile(&first_delta, 0.5), percentile(&first_delta, 0.99));
    fflush(stdout);
}

static void usage(const char *problem)
{
    fprintf(stderr,
            "load: %s\nusage: load --url http://127.0.0.1:PORT/PATH --body FILE [--streams N] [--warm S] "
            "[--seconds S] [--header 'NAME: VALUE']...\n",
            problem);
    exit(2);
}

static char *read_body(const char *name, size_t *length)
{
    FILE *file = fopen(name, "rb");
    if (!file || fseek(file, 0, SEEK_END))
        usage("cannot read the body");
    *length = (size_t)ftell(file);
    rewind(file);
    char *body = malloc(*length + 1);
    if (fread(body, 1, *length, file) != *length)
        usage("cannot read the body");
    fclose(file);
    return body;
}

/* Sets `server` and gives back the path. */
static const char *read_url(const char *url)
{
    char host[16];
    int port, length = 0;
    if (sscanf(url, "http://%15[0-9.]:%d%n", host, &port, &length) != 2 || strncmp(host, "127.", 4))
        usage("--url must be http://127.x.x.x:PORT/PATH");
    server.sin_family = AF_INET;
    server.sin_port = htons((uint16_t)port);
    inet_pton(AF_INET, host, &server.sin_addr);
    return url[length] ? url + length : "/";
}

static void make_request(const char *url, const char *body_file, const char *headers)
{
    size_t body_length, room;
    const char *path = read_url(url);
    char *body = read_body(body_file, &body_length);
    room = strlen(path) + strlen(headers) + body_length + 512;
    request = malloc(room);
    int head = snprintf(request, room,
                        "POST %s HTTP/1.1\r\nHost: 127.0.0.1:%d\r\nContent-Type: application/json\r\n"
                        "Accept: text/event-stream\r\n%sContent-Length: %zu\r\n\r\n",
                        path, ntohs(server.sin_port), headers, body_length);
    memcpy(request + head, body, body_length);
    request_length = (size_t)head + body_length;
    free(body);
}

int main(int argc, char **argv)
{
    static const struct option options[] = {
        {"url", required_argument, NULL, 'u'},     {"body", required_argument, NULL, 'b'},
        {"streams", required_argument, NULL, 'n'}, {"warm", required_argument, NULL, 'w'},
        {"seconds", required_argument, NULL, 's'}, {"header", required_argument, NULL, 'H'},
        {NULL, 0, NULL, 0},
    };
    const char *url = NULL, *body = NULL;
    static char headers[8192];
    double warm = 1, seconds = 4;
    for (int option; (option = getopt_long(argc, argv, "u:b:n:w:s:H:", options, NULL)) != -1;) {
        size_t used = strlen(headers);
        switch (option) {
        case 'u': url = optarg; break;
        case 'b': body = optarg; break;
        case 'n': stream_count = atoi(optarg); break;
        case 'w': warm = atof(optarg); break;
        case 's': seconds = atof(optarg); break;
        case 'H': snprintf(headers + used, sizeof headers - used, "%s\r\n", optarg); break;
        default: usage("unknown option");
        }
    }
    if (!url || !body || stream_count < 1 || warm < 0 || seconds <= 0)
        usage("--url and --body are needed");
    make_request(url, body, headers);
    signal(SIGPIPE, SIG_IGN);
    poller = epoll_create1(EPOLL_CLOEXEC);
    streams = calloc((size_t)stream_count, sizeof *streams);
    closed_count = stream_count;

    uint64_t start = now_us();
    run_until(start + (uint64_t)(warm * 1e6));
    window_open = true;
    uint64_t opened = now_us();
    fprintf(stderr, "window open\n");
    run_until(opened + (uint64_t)(seconds * 1e6));
    window_open = false;
    report((double)(now_us() - opened) / 1e6);
    run_until(now_us() + AFTERGLOW_US);
    return 0;
}
