/* Lexical parts of tool calls, shared by their readers (tool_calls.c, call_stream.c): words, names,
 * JSON's extents, and values as Python and Gemma write them. Ranges are text[*at .. end); what is
 * parsed moves *at behind it, and on failure *at is undefined. Pure; any thread. */
#ifndef ENGINE_TEXT_CALL_LEX_H
#define ENGINE_TEXT_CALL_LEX_H

#include "engine/base/strbuf.h"
#include "engine/text/call_slice.h"

#include <jansson.h>
#include <stdbool.h>

#define LEX_BLANKS " \t\r\n"
#define LEX_QUOTE "<|\"|>"    /* Gemma's */
#define LEX_ARG_KEY "arg_key" /* GLM's, Hy3's and LongCat's: a value has a tag of its own */

bool lex_one_of(char c, const char *set);                   /* never for 0 */
size_t lex_blanks(const char *text, size_t at, size_t end); /* behind them */
bool lex_stands(const char *text, size_t at, size_t end, const char *word);
/* Skips a word; false: it is not there, *at is unchanged. */
bool lex_pass(const char *text, size_t *at, size_t end, const char *word);
/* The text before the next `word`, which is skipped; false: *at is unchanged. */
bool lex_until(const char *text, size_t *at, size_t end, const char *word, struct call_slice *out);
bool lex_is(const char *text, struct call_slice s, const char *word);

/* Identifiers, with the characters that servers and packages add. */
bool lex_is_name(const char *text, struct call_slice s);
struct call_slice lex_trimmed(const char *text, struct call_slice s);
/* "functions.get:0", "get[CALL_ID]123": only the name. */
struct call_slice lex_bare_name(const char *text, struct call_slice s);

/* ---- JSON ---- */

/* End of the string whose first quote is text[at]; end if it is not closed. */
size_t lex_string_end(const char *text, size_t at, size_t end);
/* End of the value that begins at text[at], which is JSON. */
size_t lex_value_end(const char *text, size_t at, size_t end);
/* The next value of an object or a list from *at on; false: no more. */
bool lex_next_value(const char *text, size_t *at, size_t end, struct call_slice *out);

/* ---- values of Python and Gemma ---- */

/* One escape after the backslash at text[*at]; its text is appended to *b. */
void lex_escape(const char *text, size_t *at, size_t end, struct strbuf *b);
/* A key before `colon`, bare or quoted. */
bool lex_key(const char *text, size_t *at, size_t end, char colon, struct call_slice *out);
/* A string, with its quotes; out (may be NULL) gets a new reference. */
bool lex_quoted(const char *text, size_t *at, size_t end, json_t **out);
/* Any value; depth: 0. out (may be NULL) gets a new reference. */
bool lex_literal(const char *text, size_t *at, size_t end, int depth, json_t **out);
/* Takes value (NULL: false). */
bool lex_set_member(json_t *o, const char *text, struct call_slice key, json_t *value);

#endif
