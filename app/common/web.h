/* Shared by all uses of libcurl: it is opened at the first use (engine/base/library.h) and its
 * functions are called as web.curl_…; only http and https are allowed, no signal is raised, and an
 * error becomes a phrase for a message. A handle belongs to one thread at a time. */
#ifndef APP_COMMON_WEB_H
#define APP_COMMON_WEB_H

#include "engine/base/error.h"
#include "engine/base/library.h"

/* its macros would stand in the way of pointers to functions */
#define CURL_DISABLE_TYPECHECK
#include <curl/curl.h>
#include <stdbool.h>

/* clang-format off */
#define WEB_FUNCTIONS(X) \
    X(curl_easy_cleanup) X(curl_easy_getinfo) X(curl_easy_init) X(curl_easy_perform) \
    X(curl_easy_setopt) X(curl_easy_strerror) X(curl_global_init) X(curl_multi_add_handle) \
    X(curl_multi_cleanup) X(curl_multi_info_read) X(curl_multi_init) X(curl_multi_perform) \
    X(curl_multi_poll) X(curl_multi_remove_handle) X(curl_slist_append) X(curl_slist_free_all) \
    X(curl_url) X(curl_url_cleanup) X(curl_url_set)
/* clang-format on */

struct web {
    WEB_FUNCTIONS(LIBRARY_MEMBER)
};
extern struct web web;

/* Before anything else here, and before any function of libcurl; any thread, any number of times.
 * ERR_DEVICE: libcurl is not installed. */
int web_open(struct error *e);
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
