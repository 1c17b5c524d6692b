/* Tool calls read while the model still writes them, for streams: name and arguments are handed on
 * as soon as they are certain, in every syntax of call_syntaxes.h. The arguments are JSON whatever
 * the syntax; the pieces of a call, joined, are at every moment the beginning of a valid object,
 * and in the end what tool_calls.h reads from the whole text. What cannot be told early (arguments
 * before the name, a string of JSON) is not handed on: read it at the end.
 * One call_stream a text; zeros: at its beginning. Any thread; nothing is kept but positions. */
#ifndef ENGINE_TEXT_CALL_STREAM_H
#define ENGINE_TEXT_CALL_STREAM_H

#include "engine/text/json_prefix.h"
#include "engine/text/tool_calls.h"

struct call_stream_sink {
    void *ctx;
    /* A call begins. *parameters (borrowed until its end): the tool's schema, or NULL. false: it is
     * no call; nothing more is read. */
    bool (*begin)(void *ctx, const char *name, const json_t **parameters);
    void (*arguments)(void *ctx, const char *json, size_t n); /* whole characters of UTF-8 */
    void (*end)(void *ctx);                                   /* the call is complete */
};

enum call_stream_state {
    CALL_STREAM_HEAD,    /* before or in the head of a call */
    CALL_STREAM_JSON,    /* in arguments that are JSON */
    CALL_STREAM_TAIL,    /* behind them */
    CALL_STREAM_MEMBERS, /* between arguments of other syntaxes */
    CALL_STREAM_VALUE,   /* in an argument that is handed on whole */
    CALL_STREAM_TEXT,    /* in a string of XML */
    CALL_STREAM_QUOTED,  /* in a string of Python or Gemma */
    CALL_STREAM_LOST     /* not a call, or not one that can be streamed */
};

struct call_stream {
    enum call_stream_state state;
    const struct call_syntax *syntax; /* NULL: not known yet */
    const json_t *parameters;
    size_t at;      /* read so far */
    size_t seen;    /* searched so far, in VALUE and TEXT */
    bool open;      /* a call has begun and not ended */
    bool some;      /* it has members */
    unsigned types; /* of the member, enum call_type */
    char quote;     /* of the string; 0: Gemma's */
    struct json_prefix json;
};

/* text[0 .. n): all that was written so far, the same as before and more. */
void call_stream_read(struct call_stream *c, const char *text, size_t n,
                      const struct call_stream_sink *sink);

#endif
