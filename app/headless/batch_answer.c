/* See batch_answer.h. */
#include "app/headless/batch_answer.h"

#include "app/headless/batch_output.h"

#include <stdio.h>

json_t *batch_answer_new(size_t index, const char *text, size_t n)
{
    char input[24];

    snprintf(input, sizeof input, "%016llx", (unsigned long long)batch_digest(text, n));
    return json_pack("{s:I, s:n, s:s}", "index", (json_int_t)index, "id", "input", input);
}

void batch_answer_failed(json_t *o, int code, const struct error *why)
{
    json_object_set_new(o, "error",
                        json_pack("{s:s, s:o*}", "code", error_word(code), "message",
                                  json_string(why->text)));
}

static json_t *rate(double n, uint64_t ns)
{
    return n > 0 && ns ? json_real(n * 1e9 / (double)ns) : json_null();
}

static json_t *milliseconds(uint64_t ns)
{
    return json_real((double)ns / 1e6);
}

void batch_answer_put(json_t *o, const struct strbuf *said, const struct strbuf *reasoning,
                      const struct turn_done_event *d)
{
    json_t *timings = json_object(), *text = json_stringn(strbuf_text(said), said->len);
    int computed = d->prompt_tokens - d->cached_tokens;

    json_object_set_new(o, "text", text ? text : json_string(""));
    if (reasoning->len)
        json_object_set_new(o, "reasoning_content", json_stringn(reasoning->data, reasoning->len));
    json_object_set_new(o, "stop_reason", json_string(stop_reason_word(d->reason)));
    json_object_set_new(o, "prompt_tokens", json_integer(d->prompt_tokens));
    json_object_set_new(o, "cached_tokens", json_integer(d->cached_tokens));
    json_object_set_new(o, "completion_tokens", json_integer(d->completion_tokens));
    json_object_set_new(timings, "ttft_ms",
                        d->completion_tokens ? milliseconds(d->ttft_ns) : json_null());
    json_object_set_new(timings, "prefill_ms", milliseconds(d->prefill_ns));
    json_object_set_new(timings, "decode_ms", milliseconds(d->decode_ns));
    json_object_set_new(timings, "prefill_tok_s", rate(computed, d->prefill_ns));
    json_object_set_new(timings, "decode_tok_s", rate(d->completion_tokens - 1, d->decode_ns));
    json_object_set_new(o, "timings", timings);
}

bool batch_is_fatal(int rc)
{
    return rc == ERR_CANCELLED || rc == ERR_IO || rc == ERR_MODEL;
}
