/* Shared by all uses of libcurl: it is initialised once, only http and https are allowed, no signal
 * is raised, and an error becomes a phrase for a message. A handle belongs to one thread at a time.
 */
#ifndef APP_COMMON_WEB_H
#define APP_COMMON_WEB_H

#include "engine/base/error.h"

#include <curl/curl.h>
#include <stdbool.h>

/* A handle with our defaults (30 s to connect; no total limit, since models are large and answers
 * long; certificates of CURL_CA_BUNDLE, SSL_CERT_FILE or SSL_CERT_DIR, else the system's). Free
 * with curl_easy_cleanup. NULL: out of memory. */
CURL *web_handle(void);
/* Why a transfer failed, to end a line with: "nobody listens there". `detail` is
 * CURLOPT_ERRORBUFFER, may be empty; the result is static, detail, or libcurl's own. */
const char *web_failure(CURLcode code, const char *detail);
/* Adds "NAME: VALUE" to a list of headers. ERR_MEMORY; ERR_USAGE if the value contains a line end
 * (header injection). */
int web_header(struct curl_slist **list, const char *name, const char *value, struct error *e);
/* Waits before attempt `tries` (1, 2, …): 0.25 s, doubled each time up to 8 s, or the server's
 * Retry-After (seconds, at most 60). Returns true early if stop(ctx) does. */
bool web_back_off(int tries, long asked, bool (*stop)(void *ctx), void *ctx);

#endif
