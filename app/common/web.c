/* See web.h. */
#include "app/common/web.h"

#include "engine/base/clock.h"
#include "engine/base/strbuf.h"

#include <libraries.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#ifdef MOETOP_STATIC
struct web web = {WEB_FUNCTIONS(LIBRARY_ADDRESS)};

static void load(struct error *e)
{
}
#else
struct web web;

static void load(struct error *e)
{
    static const char *const names[] = {WEB_FUNCTIONS(LIBRARY_NAME) NULL};

    library_load(LIBRARY_CURL, "package libcurl4", names, &web, sizeof web, e);
}
#endif

static struct error failure; /* written once, as the table is */

static void set_up(void)
{
    load(&failure);
    if (!failure.code)
        web.curl_global_init(CURL_GLOBAL_DEFAULT);
}

int web_open(struct error *e)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;

    pthread_once(&once, set_up);
    return failure.code ? error_set(e, ERR_DEVICE, "%s", failure.text) : 0;
}

/* The curl tool reads these variables, the library does not. */
static void find_authorities(CURL *c)
{
    static const struct {
        const char *variable;
        CURLoption option;
    } places[] = {
        {"CURL_CA_BUNDLE", CURLOPT_CAINFO},
        {"SSL_CERT_FILE", CURLOPT_CAINFO},
        {"SSL_CERT_DIR", CURLOPT_CAPATH},
    };

    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        const char *value = getenv(places[i].variable);

        if (value && *value) {
            web.curl_easy_setopt(c, places[i].option, value);
            return;
        }
    }
    /* The library knows where they are on the system it was built for. */
    static const char *const bundles[] = {"/etc/ssl/certs/ca-certificates.crt",
                                          "/etc/pki/tls/certs/ca-bundle.crt",
                                          "/etc/ssl/ca-bundle.pem", "/etc/ssl/cert.pem"};

    if (access(bundles[0], R_OK) == 0)
        return;
    for (size_t i = 1; i < sizeof bundles / sizeof *bundles; i++)
        if (access(bundles[i], R_OK) == 0) {
            web.curl_easy_setopt(c, CURLOPT_CAINFO, bundles[i]);
            return;
        }
}

CURL *web_handle(void)
{
    CURL *c = web.curl_easy_init();

    if (!c)
        return NULL;
    web.curl_easy_setopt(c, CURLOPT_NOSIGNAL, 1L);
    web.curl_easy_setopt(c, CURLOPT_PROTOCOLS_STR, "http,https");
    web.curl_easy_setopt(c, CURLOPT_REDIR_PROTOCOLS_STR, "http,https");
    web.curl_easy_setopt(c, CURLOPT_CONNECTTIMEOUT, 30L);
    web.curl_easy_setopt(c, CURLOPT_USERAGENT, "moetop/" MOETOP_VERSION);
    web.curl_easy_setopt(c, CURLOPT_TCP_KEEPALIVE, 1L);
    find_authorities(c);
    return c;
}

const char *web_failure(CURLcode code, const char *detail)
{
    switch (code) {
    case CURLE_COULDNT_CONNECT: return "nobody listens there";
    case CURLE_COULDNT_RESOLVE_HOST: return "no such host is known";
    case CURLE_OPERATION_TIMEDOUT: return "no answer in time";
    case CURLE_PARTIAL_FILE:
    case CURLE_GOT_NOTHING:
    case CURLE_RECV_ERROR:
    case CURLE_SEND_ERROR: return "the connection was cut";
    case CURLE_PEER_FAILED_VERIFICATION:
        return detail && (strstr(detail, "issuer") || strstr(detail, "self"))
                   ? "nobody known here signed its certificate: name a file of its authority's in "
                     "SSL_CERT_FILE"
               : detail && *detail ? detail
                                   : "its certificate is not valid";
    default: return detail && *detail ? detail : web.curl_easy_strerror(code);
    }
}

int web_header(struct curl_slist **list, const char *name, const char *value, struct error *e)
{
    struct strbuf line = {0};
    struct curl_slist *longer;

    if (strpbrk(value, "\r\n"))
        return error_set(e, ERR_USAGE, "%s: its value holds a line end", name);
    strbuf_printf(&line, "%s: %s", name, value);
    longer = line.failed ? NULL : web.curl_slist_append(*list, line.data);
    strbuf_release(&line);
    if (!longer)
        return error_set(e, ERR_MEMORY, "out of memory for a request");
    *list = longer;
    return 0;
}

bool web_back_off(int tries, long asked, bool (*stop)(void *ctx), void *ctx)
{
    uint64_t wait = 250 * CLOCK_MILLI, until;

    for (int i = 1; i < tries && wait < 8000 * CLOCK_MILLI; i++)
        wait *= 2;
    if (asked > 0)
        wait = (uint64_t)(asked < 60 ? asked : 60) * 1000 * CLOCK_MILLI;
    until = clock_now() + wait;
    while (!stop || !stop(ctx)) {
        if (clock_now() >= until)
            return false;
        clock_sleep(20 * CLOCK_MILLI);
    }
    return true;
}
