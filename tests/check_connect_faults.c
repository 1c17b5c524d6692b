/* --connect and what goes wrong: streams that break, servers that are busy, lost and back, pages of
 * proxies. */
#include "engine/base/clock.h"
#include "tests/replay.h"
#include "tests/support.h"

#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static const struct {
    enum replay_fault fault;
    const char *says;
} faults[] = {
    {REPLAY_RESET, "(the connection was cut); what came is kept"},
    {REPLAY_END, "the stream ended in the middle, after"},
    {REPLAY_HALF_EVENT, "the stream ended in the middle of an event, after"},
    {REPLAY_SILENCE, "(nothing came for 2 s); what came is kept"},
};

/* What came is kept, and the next message is answered. */
START_TEST(a_stream_that_breaks_costs_one_answer)
{
    replay.fault = faults[_i].fault;
    replay_connect(NULL);
    replay_await(EVENT_READY, NULL);
    replay_ask();
    replay_await(EVENT_ERROR, faults[_i].says);
    ck_assert_int_eq(replay_error, ERR_IO);
    ck_assert(replay_text.len &&
              strncmp(strbuf_text(&replay_text), "The fox slept.", replay_text.len) == 0);
    replay.fault = REPLAY_WELL;
    replay_ask();
    replay_await(EVENT_TURN_DONE, NULL);
    ck_assert_str_eq(strbuf_text(&replay_text), "The fox slept.");
    ck_assert_msg(replay_notices.len == 0, "it said: %s", replay_notices.data);
    ck_assert_int_eq(replay.asked, 2);
    replay_disconnect();
}
END_TEST

START_TEST(an_event_without_its_last_line_is_whole)
{
    replay.fault = REPLAY_NO_LAST_LINE;
    replay_connect(NULL);
    replay_await(EVENT_READY, NULL);
    replay_ask();
    replay_await(EVENT_TURN_DONE, NULL);
    ck_assert_str_eq(strbuf_text(&replay_text), "The fox slept.");
    replay_disconnect();
}
END_TEST

static const char *busy_until(const char *when)
{
    static char head[300];

    snprintf(head, sizeof head,
             "HTTP/1.1 429 Too Many Requests\r\nRetry-After: %s\r\nContent-Length: 0\r\n"
             "Connection: close\r\n\r\n",
             when);
    return head;
}

/* In seconds, or as a date. */
START_TEST(a_busy_server_is_asked_again_when_it_says)
{
    char when[60] = "3", words[200];
    time_t later = time(NULL) + 4;
    uint64_t begun;

    if (_i)
        strftime(when, sizeof when, "%a, %d %b %Y %H:%M:%S GMT", gmtime(&later));
    replay.refusal = busy_until(when);
    replay.refusals = 1;
    replay_connect(NULL);
    replay_await(EVENT_READY, NULL);
    begun = clock_now();
    replay_ask();
    replay_await(EVENT_NOTICE, "is busy (HTTP 429): asking again in ");
    REPLAY_SAID(" s (2 of 5)");
    ck_assert(remote_waits(replay_chat, words, sizeof words));
    ck_assert_msg(strstr(words, "busy (HTTP 429): asked again in ") != NULL, "%s", words);
    replay_await(EVENT_TURN_DONE, NULL);
    ck_assert_str_eq(strbuf_text(&replay_text), "The fox slept.");
    ck_assert(clock_seconds(clock_now() - begun) > 1.5);
    ck_assert(!remote_waits(replay_chat, words, sizeof words));
    ck_assert_int_eq(replay.asked, 2);
    replay_disconnect();
}
END_TEST

START_TEST(a_pause_can_be_ended)
{
    char words[200];
    uint64_t begun;

    replay.refusal = busy_until("50");
    replay.refusals = 9;
    replay_connect(NULL);
    replay_await(EVENT_READY, NULL);
    replay_ask();
    replay_await(EVENT_NOTICE, "asking again in 50 s");
    begun = clock_now();
    remote_cancel(replay_chat);
    replay_await(EVENT_TURN_DONE, NULL);
    ck_assert_int_eq(replay_done.reason, STOP_CANCELLED);
    ck_assert(clock_seconds(clock_now() - begun) < 5);
    ck_assert(!remote_waits(replay_chat, words, sizeof words));
    ck_assert_int_eq(replay.asked, 1);
    replay_disconnect();
}
END_TEST

#define PAGE(status, type, body) \
    "HTTP/1.1 " status "\r\nContent-Type: " type "\r\nConnection: close\r\n\r\n" body

static const struct {
    const char *sent, *says;
    int asked;
} pages[] = {
    {PAGE("502 Bad Gateway", "text/html",
          "<html><head><TITLE>502 Bad\n Gateway</TITLE></head><body>nginx</body></html>"),
     "answers HTTP 502: 502 Bad Gateway\n", 5},
    {PAGE("500 Internal Server Error", "text/html; charset=utf-8", "<html><title>Oops"),
     "answers HTTP 500\n", 1},
    {PAGE("500 Internal Server Error", "text/plain", "\r\nupstream reset: overflow\r\nmore"),
     "answers HTTP 500: upstream reset: overflow\n", 1},
    {PAGE("200 OK", "text/html", "<!doctype html><title class=x> Sign in </title>"),
     "what it answers is text/html (Sign in), no answer of a model\n", 1},
    {PAGE("429 Too Many Requests", "application/json",
          "{\"error\": {\"message\": \"quota\", \"type\": \"x\", \"code\": \"429\"}}"),
     "answers HTTP 429: quota\n", 5},
};

START_TEST(a_proxys_page_is_one_line)
{
    replay.refusal = pages[_i].sent;
    replay.refusals = 9;
    replay_connect(NULL);
    replay_await(EVENT_READY, NULL);
    replay_ask();
    replay_await(EVENT_ERROR, NULL);
    REPLAY_SAID(pages[_i].says);
    ck_assert_int_eq(replay.asked, pages[_i].asked);
    replay_disconnect();
}
END_TEST

static void lose(void)
{
    replay.fault = REPLAY_RESET;
    replay_ask();
    replay_await(EVENT_TOKEN, NULL);
    replay_end();
    replay_await(EVENT_ERROR, "the stream broke after");
    replay_await(EVENT_NOTICE, "does not answer any more (nobody listens there)");
    replay.fault = REPLAY_WELL;
}

START_TEST(a_message_waits_for_a_lost_server)
{
    char words[200];

    replay_connect(NULL);
    replay_await(EVENT_READY, NULL);
    lose();
    ck_assert(replay_text.len &&
              strncmp(strbuf_text(&replay_text), "The fox slept.", replay_text.len) == 0);
    ck_assert(remote_waits(replay_chat, words, sizeof words));
    ck_assert_msg(strstr(words, "server lost for ") != NULL, "%s", words);
    replay_ask(); /* taken back */
    usleep(200000);
    remote_cancel(replay_chat);
    replay_await(EVENT_TURN_DONE, NULL);
    ck_assert_int_eq(replay_done.reason, STOP_CANCELLED);
    replay_ask();
    usleep(200000);
    replay_start();
    replay_await(EVENT_NOTICE, "is back after");
    ck_assert_ptr_null(
        strstr(strbuf_text(&replay_notices), "/continue")); /* another message was sent */
    replay_await(EVENT_TURN_DONE, NULL);
    ck_assert_str_eq(strbuf_text(&replay_text), "The fox slept.");
    ck_assert_int_eq(replay.asked, 2);
    ck_assert(!remote_waits(replay_chat, words, sizeof words));
    replay_disconnect();
}
END_TEST

/* Nobody asks anything meanwhile, and it has another model when it is back. */
START_TEST(a_lost_server_is_found_again)
{
    replay_connect(NULL);
    replay_await(EVENT_READY, NULL);
    lose();
    replay.models = "{\"data\": [{\"id\": \"other\", \"owned_by\": \"vllm\"}]}";
    replay_start();
    replay_await(EVENT_READY, NULL);
    replay_await(EVENT_NOTICE, "/continue goes on with the answer that was cut, /retry asks again");
    REPLAY_SAID("it serves other now, no longer Qwen/Qwen3-30B-A3B-Instruct-2507");
    ck_assert_str_eq(remote_server(replay_chat)->model, "other");
    replay_ask();
    replay_await(EVENT_TURN_DONE, NULL);
    ck_assert_ptr_nonnull(strstr(replay.said, "\"other\""));
    replay_disconnect();
}
END_TEST

/* A request that found nobody is no error: it is sent when the server is back. */
START_TEST(a_request_without_a_server_is_sent_later)
{
    replay_connect(NULL);
    replay_await(EVENT_READY, NULL);
    replay_end();
    replay_ask();
    replay_await(EVENT_NOTICE, "does not answer any more");
    replay_start();
    replay_await(EVENT_TURN_DONE, NULL);
    ck_assert_str_eq(strbuf_text(&replay_text), "The fox slept.");
    ck_assert_int_eq(replay_error, 0);
    ck_assert_int_eq(replay.asked, 1);
    replay_disconnect();
}
END_TEST

static Suite *suite(void)
{
    Suite *s = suite_create("connect_faults");
    TCase *t = tcase_create("faults");

    tcase_add_checked_fixture(t, replay_set_up, replay_tear_down);
    tcase_set_timeout(t, 90);
    tcase_add_loop_test(t, a_stream_that_breaks_costs_one_answer, 0,
                        sizeof faults / sizeof *faults);
    tcase_add_test(t, an_event_without_its_last_line_is_whole);
    tcase_add_loop_test(t, a_busy_server_is_asked_again_when_it_says, 0, 2);
    tcase_add_test(t, a_pause_can_be_ended);
    tcase_add_loop_test(t, a_proxys_page_is_one_line, 0, sizeof pages / sizeof *pages);
    tcase_add_test(t, a_message_waits_for_a_lost_server);
    tcase_add_test(t, a_lost_server_is_found_again);
    tcase_add_test(t, a_request_without_a_server_is_sent_later);
    suite_add_tcase(s, t);
    return s;
}

int main(void)
{
    return support_run(suite());
}
