/* upstream.c: a mock model server for the bench. One process, one thread, epoll, loopback only.
 *
 *     upstream --port 9100
 *
 *     POST (any path)                          a Chat Completions stream in vLLM's shape: role, reasoning_content
 *                                              deltas, content deltas, finish, usage, [DONE]
 *     GET /scenario/REASONING/CONTENT/PACE_US  what streams that start from now on look like: so many deltas of
 *                                              each kind, one every PACE_US microseconds (0: as fast as they go)
 *     GET /open                                how many streams are open: {"open": 3}
 *     GET (any other path)                     a model list
 *
 * One delta is one server-sent event, one HTTP chunk and one write, with TCP_NODELAY: what a model server that
 * yields token by token puts on the wire. The deltas of a paced stream are due at fixed times from its start; a
 * reader that is late gets what it missed as soon as it reads again, and nothing is dropped. Streams start at a
 * random point of the pace, so that they do not tick together. A client that goes away ends its stream.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <getopt.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sched.h>
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

#define MAX_CLIENTS 16384
#define BACKLOG 4096
#define HEAD_ROOM 16384
#define FRAME_ROOM 2048
#define EVENTS_PER_TURN 512
/* Writes to one unpaced stream before it is another stream's turn: enough that reads downstream coalesce as they
 * do behind a fast model server, few enough that no stream waits for another. */
#define BURST 8

struct scenario {
    unsigned reasoning;
    unsigned content;
    uint64_t pace_us;
};

enum phase { READING_HEAD, SKIPPING_BODY, STREAMING };

struct client {
    int fd;
    enum phase phase;
    bool wants_write; /* EPOLLOUT is on: the socket's buffer is full */

    char head[HEAD_ROOM];
    size_t head_length;
    size_t body_left;

    struct scenario scenario;
    uint32_t number;
    unsigned next_delta;
    bool last_written; /* the closing frame was handed to the socket */
    uint64_t due;
    int heap_index;  /* in `paced`, -1 when not there */
    int ready_index; /* in `ready`, -1 when not there */

    const char *out;
    size_t out_left;
    char frame[FRAME_ROOM];
};

/* A frame is one HTTP chunk; `marker` is where its marker begins. */
struct frame {
    char bytes[FRAME_ROOM];
    size_t length;
    size_t marker;
};

static struct scenario scenario = {200, 100, 20000};
static struct frame opening, reasoning_delta, content_delta;
static int poller;
static uint32_t streams_started;
static unsigned streams_open;
static struct client *paced[MAX_CLIENTS]; /* a binary heap on `due` */
static int paced_count;
static struct client *ready[MAX_CLIENTS]; /* unpaced streams that can be written to */
static int ready_count;

static void die(const char *what)
{
    perror(what);
    exit(1);
}

/* ---- the frames ------------------------------------------------------------------------------------------- */

#define CHUNK_START                                                                                                 \
    "data: {\"id\":\"chatcmpl-5f0c6d2e9b7a4813\",\"object\":\"chat.completion.chunk\",\"created\":1750000000,"      \
    "\"model\":\"mock-r1\",\"choices\":[{\"index\":0,\"delta\":{"
#define CHUNK_END(reason) "},\"logprobs\":null,\"finish_reason\":" reason "}]}\n\n"

static const char response_head[] = "HTTP/1.1 200 OK\r\n"
                                    "Content-Type: text/event-stream; charset=utf-8\r\n"
                                    "Cache-Control: no-cache\r\n"
                                    "Transfer-Encoding: chunked\r\n\r\n";

static size_t write_chunk(char *to, const char *event)
{
    return (size_t)sprintf(to, "%zx\r\n%s\r\n", strlen(event), event);
}

static void make_frame(struct frame *frame, const char *event)
{
    frame->length = write_chunk(frame->bytes, event);
    const char *marker = strchr(frame->bytes, MARKER_EDGE);
    frame->marker = marker ? (size_t)(marker - frame->bytes) : 0;
}

static void make_frames(void)
{
    make_frame(&opening, CHUNK_START "\"role\":\"assistant\",\"content\":\"\"" CHUNK_END("null"));
    make_frame(&reasoning_delta, CHUNK_START "\"reasoning_content\":\"~r" MARKER_BLANK " \"" CHUNK_END("null"));
    make_frame(&content_delta, CHUNK_START "\"content\":\"~c" MARKER_BLANK " \"" CHUNK_END("null"));
}

static size_t write_closing(char *to, const struct scenario *s)
{
    char usage[512];
    unsigned written = s->reasoning + s->content;
    snprintf(usage, sizeof usage,
             "data: {\"id\":\"chatcmpl-5f0c6d2e9b7a4813\",\"object\":\"chat.completion.chunk\","
             "\"created\":1750000000,\"model\":\"mock-r1\",\"choices\":[],\"usage\":{\"prompt_tokens\":9,"
             "\"completion_tokens\":%u,\"total_tokens\":%u,"
             "\"completion_tokens_details\":{\"reasoning_tokens\":%u}}}\n\n",
             written, written + 9, s->reasoning);
    size_t length = write_chunk(to, CHUNK_START "\"content\":\"\"" CHUNK_END("\"stop\""));
    length += write_chunk(to + length, usage);
    length += write_chunk(to + length, "data: [DONE]\n\n");
    memcpy(to + length, "0\r\n\r\n", 5);
    return length + 5;
}

static void put_hex(char *at, int digits, uint64_t value)
{
    while (digits--) {
        at[digits] = "0123456789abcdef"[value & 15];
        value >>= 4;
    }
}

static size_t write_delta(char *to, const struct client *c)
{
    const struct frame *frame = c->next_delta < c->scenario.reasoning ? &reasoning_delta : &content_delta;
    memcpy(to, frame->bytes, frame->length);
    char *marker = to + frame->marker;
    put_hex(marker + MARKER_STREAM_AT, MARKER_STREAM_DIGITS, c->number);
    put_hex(marker + MARKER_DELTA_AT, MARKER_DELTA_DIGITS, c->next_delta);
    put_hex(marker + MARKER_TOTAL_AT, MARKER_TOTAL_DIGITS, c->scenario.reasoning + c->scenario.content);
    put_hex(marker + MARKER_TIME_AT, MARKER_TIME_DIGITS, now_us());
    return frame->length;
}

/* ---- who is to be written to ------------------------------------------------------------------------------ */

static void heap_place(int at, struct client *c)
{
    paced[at] = c;
    c->heap_index = at;
}

static void heap_settle(int at)
{
    struct client *c = paced[at];
    for (; at > 0 && paced[(at - 1) / 2]->due > c->due; at = (at - 1) / 2)
        heap_place(at, paced[(at - 1) / 2]);
    for (int child; (child = 2 * at + 1) < paced_count; at = child) {
        if (child + 1 < paced_count && paced[child + 1]->due < paced[child]->due)
            child++;
        if (paced[child]->due >= c->due)
            break;
        heap_place(at, paced[child]);
    }
    heap_place(at, c);
}

static void heap_add(struct client *c)
{
    heap_place(paced_count++, c);
    heap_settle(c->heap_index);
}

static void heap_remove(struct client *c)
{
    int at = c->heap_index;
    if (at < 0)
        return;
    c->heap_index = -1;
    struct client *last = paced[--paced_count];
    if (last != c) {
        heap_place(at, last);
        heap_settle(at);
    }
}

static void ready_add(struct client *c)
{
    if (c->ready_index >= 0)
        return;
    c->ready_index = ready_count;
    ready[ready_count++] = c;
}

static void ready_remove(struct client *c)
{
    int at = c->ready_index;
    if (at < 0)
        return;
    c->ready_index = -1;
    struct client *last = ready[--ready_count];
    if (last != c) {
        ready[at] = last;
        last->ready_index = at;
    }
}

/* ---- writing ---------------------------------------------------------------------------------------------- */

enum result { DONE, BLOCKED, GONE };

static void watch(struct client *c, bool for_write)
{
    if (c->wants_write == for_write)
        return;
    c->wants_write = for_write;
    struct epoll_event event = {.events = EPOLLIN | (for_write ? EPOLLOUT : 0u), .data.ptr = c};
    epoll_ctl(poller, EPOLL_CTL_MOD, c->fd, &event);
}

static enum result flush(struct client *c)
{
    while (c->out_left) {
        ssize_t sent = send(c->fd, c->out, c->out_left, MSG_NOSIGNAL);
        if (sent < 0) {
            if (errno == EINTR)
                continue;
            if (errno != EAGAIN)
                return GONE;
            watch(c, true);
            return BLOCKED;
        }
        c->out += sent;
        c->out_left -= (size_t)sent;
    }
    watch(c, false);
    return DONE;
}

static enum result send_bytes(struct client *c, const char *bytes, size_t length)
{
    c->out = bytes;
    c->out_left = length;
    return flush(c);
}

static void stream_over(struct client *c)
{
    heap_remove(c);
    ready_remove(c);
    c->phase = READING_HEAD;
    c->last_written = false;
    streams_open--;
}

static void drop(struct client *c)
{
    if (c->phase == STREAMING)
        stream_over(c);
    close(c->fd);
    free(c);
}

/* One delta, or the closing frame after the last. Call only when nothing is left of the frame before. */
static enum result write_next(struct client *c)
{
    size_t length;
    if (c->next_delta < c->scenario.reasoning + c->scenario.content) {
        length = write_delta(c->frame, c);
        c->next_delta++;
    } else {
        length = write_closing(c->frame, &c->scenario);
        c->last_written = true;
    }
    return send_bytes(c, c->frame, length);
}

static void write_burst(struct client *c)
{
    for (int n = 0; n < BURST; n++) {
        enum result result = write_next(c);
        if (result == GONE)
            return drop(c);
        if (result == BLOCKED)
            return ready_remove(c); /* resume_stream() puts it back, or ends it */
        if (c->last_written)
            return stream_over(c);
    }
}

static void write_due(struct client *c)
{
    if (c->out_left)
        return heap_remove(c); /* still blocked; resume_stream() puts it back, and what is overdue follows at once */
    enum result result = write_next(c);
    if (result == GONE)
        return drop(c);
    if (!c->last_written) {
        c->due += c->scenario.pace_us;
        return heap_settle(c->heap_index);
    }
    if (result == DONE)
        stream_over(c);
    else
        heap_remove(c);
}

/* The socket takes bytes again. */
static void resume_stream(struct client *c)
{
    enum result result = flush(c);
    if (result == GONE)
        return drop(c);
    if (result == BLOCKED || c->phase != STREAMING)
        return;
    if (c->last_written)
        stream_over(c);
    else if (!c->scenario.pace_us)
        ready_add(c);
    else if (c->heap_index < 0)
        heap_add(c);
}

static void start_stream(struct client *c)
{
    c->phase = STREAMING;
    c->scenario = scenario;
    c->number = streams_started++ & 0xfffff;
    c->next_delta = 0;
    c->last_written = false;
    streams_open++;

    size_t head = sizeof response_head - 1;
    memcpy(c->frame, response_head, head);
    memcpy(c->frame + head, opening.bytes, opening.length);
    enum result result = send_bytes(c, c->frame, head + opening.length);
    if (result == GONE)
        return drop(c);
    if (c->scenario.pace_us) {
        c->due = now_us() + (uint64_t)random() % c->scenario.pace_us;
        heap_add(c);
    } else if (result == DONE) {
        ready_add(c);
    }
}

/* ---- reading ---------------------------------------------------------------------------------------------- */

static enum result answer(struct client *c, const char *status, const char *json)
{
    int length = snprintf(c->frame, sizeof c->frame,
                          "HTTP/1.1 %s\r\nContent-Type: application/json\r\nContent-Length: %zu\r\n\r\n%s", status,
                          strlen(json), json);
    return send_bytes(c, c->frame, (size_t)length);
}

static enum result set_scenario(struct client *c, const char *arguments)
{
    unsigned reasoning, content;
    unsigned long pace;
    if (sscanf(arguments, "%u/%u/%lu", &reasoning, &content, &pace) != 3 || reasoning > MAX_DELTAS ||
        content > MAX_DELTAS - reasoning)
        return answer(c, "400 Bad Request", "{\"error\":\"want /scenario/REASONING/CONTENT/PACE_US\"}");
    scenario = (struct scenario){reasoning, content, pace};
    return answer(c, "200 OK", "{}");
}

static enum result answer_get(struct client *c, const char *path)
{
    if (!strncmp(path, "/scenario/", 10))
        return set_scenario(c, path + 10);
    if (!strncmp(path, "/open ", 6)) {
        char json[32];
        snprintf(json, sizeof json, "{\"open\": %u}", streams_open);
        return answer(c, "200 OK", json);
    }
    return answer(c, "200 OK",
                  "{\"object\":\"list\",\"data\":[{\"id\":\"mock-r1\",\"object\":\"model\","
                  "\"created\":1750000000,\"owned_by\":\"bench\"}]}");
}

/* The value of a header in a head that ends in NUL, or NULL. `name` is "\r\nName:". */
static const char *header(const char *head, const char *name)
{
    const char *at = strcasestr(head, name);
    return at ? at + strlen(name) : NULL;
}

/* Acts on a complete head. False: the client was dropped. */
static bool handle_head(struct client *c)
{
    if (!strncmp(c->head, "GET ", 4)) {
        if (answer_get(c, c->head + 4) != GONE)
            return true;
    } else if (strncmp(c->head, "POST ", 5)) {
        answer(c, "405 Method Not Allowed", "{}");
    } else {
        const char *length = header(c->head, "\r\nContent-Length:");
        if (length) {
            c->body_left = strtoul(length, NULL, 10);
            c->phase = SKIPPING_BODY;
            return true;
        }
        answer(c, "411 Length Required", "{}");
    }
    drop(c);
    return false;
}

/* Takes in what was read; false: the client was dropped. */
static bool take(struct client *c, const char *bytes, size_t length)
{
    if (c->phase == STREAMING && length) { /* we do not pipeline */
        drop(c);
        return false;
    }
    if (c->phase == READING_HEAD) {
        if (c->head_length + length >= HEAD_ROOM) {
            drop(c);
            return false;
        }
        memcpy(c->head + c->head_length, bytes, length);
        c->head_length += length;
        char *end = memmem(c->head, c->head_length, "\r\n\r\n", 4);
        if (!end)
            return true;
        size_t beyond = c->head_length - (size_t)(end + 4 - c->head);
        end[2] = '\0';
        c->head_length = 0;
        if (!handle_head(c))
            return false;
        if (c->phase == READING_HEAD)
            return true;
        bytes += length - beyond;
        length = beyond;
    }
    c->body_left -= length < c->body_left ? length : c->body_left;
    if (c->body_left == 0)
        start_stream(c);
    return true;
}

static void read_client(struct client *c)
{
    static char buffer[65536];
    ssize_t got = recv(c->fd, buffer, sizeof buffer, 0);
    if (got > 0)
        take(c, buffer, (size_t)got);
    else if (got == 0 || (errno != EAGAIN && errno != EINTR))
        drop(c);
}

/* ---- the loop --------------------------------------------------------------------------------------------- */

static void accept_clients(int listener)
{
    int fd, on = 1;
    while ((fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC)) >= 0) {
        struct client *c = fd < MAX_CLIENTS ? calloc(1, sizeof *c) : NULL;
        if (!c) {
            close(fd);
            continue;
        }
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
        c->fd = fd;
        c->heap_index = c->ready_index = -1;
        struct epoll_event event = {.events = EPOLLIN, .data.ptr = c};
        epoll_ctl(poller, EPOLL_CTL_ADD, fd, &event);
    }
}

static int listen_on(int port)
{
    int on = 1, fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (bind(fd, (struct sockaddr *)&address, sizeof address) || listen(fd, BACKLOG))
        die("listen");
    return fd;
}

static int wait_for_events(struct epoll_event *events)
{
    struct timespec patience = {0, 0}, *timeout = NULL;
    if (ready_count) {
        timeout = &patience;
    } else if (paced_count) {
        uint64_t now = now_us(), due = paced[0]->due;
        uint64_t left = due > now ? due - now : 0;
        patience.tv_sec = (time_t)(left / 1000000u);
        patience.tv_nsec = (long)(left % 1000000u) * 1000;
        timeout = &patience;
    }
    int count = epoll_pwait2(poller, events, EVENTS_PER_TURN, timeout, NULL);
    if (count < 0 && errno != EINTR)
        die("epoll_pwait2");
    return count;
}

/* A client stands in `events` once a turn, and only its own event may drop it here. */
static void handle(const struct epoll_event *event, int listener)
{
    struct client *c = event->data.ptr;
    if (!c)
        accept_clients(listener);
    else if (event->events & (EPOLLIN | EPOLLHUP | EPOLLERR))
        read_client(c); /* when EPOLLOUT came with it, epoll says so again next turn */
    else
        resume_stream(c);
}

static void write_streams(void)
{
    /* From the end: a stream that leaves the list has its place taken by one that was served already. */
    for (int at = ready_count - 1; at >= 0; at--)
        write_burst(ready[at]);
    if (ready_count)
        sched_yield(); /* who reads may have the same CPU, and with real-time priority waits until we let it */
    uint64_t now = now_us();
    while (paced_count && paced[0]->due <= now)
        write_due(paced[0]);
}

int main(int argc, char **argv)
{
    static const struct option options[] = {{"port", required_argument, NULL, 'p'}, {NULL, 0, NULL, 0}};
    int port = 9100;
    for (int option; (option = getopt_long(argc, argv, "p:", options, NULL)) != -1;) {
        if (option != 'p')
            return 2;
        port = atoi(optarg);
    }
    signal(SIGPIPE, SIG_IGN);
    make_frames();
    int listener = listen_on(port);
    poller = epoll_create1(EPOLL_CLOEXEC);
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = NULL};
    epoll_ctl(poller, EPOLL_CTL_ADD, listener, &event);

    static struct epoll_event events[EVENTS_PER_TURN];
    for (;;) {
        int count = wait_for_events(events);
        for (int at = 0; at < count; at++)
            handle(&events[at], listener);
        write_streams();
    }
}
