/* What every use of libcurl here has in common: the library is set up once, only http and https are
 * spoken, no signal is raised, and a failure becomes a piece of a sentence. A handle belongs to one
 * thread at a time. */
#ifndef APP_COMMON_WEB_H
#define APP_COMMON_WEB_H

#include "engine/base/error.h"

#include <curl/curl.h>
#include <stdbool.h>

/* A handle with our defaults (30 s to connect; no limit for the whole, since models are large and
 * answers long; certificates of CURL_CA_BUNDLE, SSL_CERT_FILE or SSL_CERT_DIR, else the system's).
 * Free with curl_easy_cleanup. NULL: out of memory. */
CURL *web_handle(void);
/* Why a transfer failed, for the end of a line: "nobody listens there". `detail` is what
 * CURLOPT_ERRORBUFFER got, may be empty; the result is static, detail, or libcurl's own. */
const char *web_failure(CURLcode code, const char *detail);
/* Adds "NAME: VALUE" to a list of headers. ERR_MEMORY; ERR_USAGE where the value holds a line end,
 * which would be another header. */
int web_header(struct curl_slist **list, const char *name, const char *value, struct error *e);
/* Waits before try number `tries` (1, 2, …): 0.25 s, doubled each time to 8 s, or what the server
 * asked for (Retry-After, seconds, at most 60). Returns early, true, when stop(ctx) says so. */
bool web_back_off(int tries, long asked, bool (*stop)(void *ctx), void *ctx);

#endif
