/* The marker: what upstream.c writes into the text of every delta, and load.c looks for.
 *
 *     ~r 0001f 002a 012c 00123456789ab ~
 *      |   |    |    |        |
 *      |   |    |    |        send time, CLOCK_MONOTONIC in microseconds   13 hex digits
 *      |   |    |    how many deltas the stream will have                   4
 *      |   |    which delta of the stream this is, from 0                   4
 *      |   the stream's number, so that a delta in the wrong stream shows   5
 *      r: reasoning, c: content                            (written without the spaces)
 *
 * It is plain ASCII that no JSON, XML or HTML writer escapes, so it comes through whatever event shape a
 * gateway makes of it, as long as the gateway does not split the text of one delta over two events.
 */
#ifndef PELLUCID_BENCH_MARKER_H
#define PELLUCID_BENCH_MARKER_H

#include <stdint.h>
#include <time.h>

#define MARKER_EDGE '~'
#define MARKER_STREAM_AT 2
#define MARKER_STREAM_DIGITS 5
#define MARKER_DELTA_AT 7
#define MARKER_DELTA_DIGITS 4
#define MARKER_TOTAL_AT 11
#define MARKER_TOTAL_DIGITS 4
#define MARKER_TIME_AT 15
#define MARKER_TIME_DIGITS 13
#define MARKER_END_AT 28
#define MARKER_LENGTH 29

#define MARKER_BLANK "00000" "0000" "0000" "0000000000000" "~"
#define MAX_DELTAS 65535

static inline uint64_t now_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000u + (uint64_t)t.tv_nsec / 1000u;
}

#endif
