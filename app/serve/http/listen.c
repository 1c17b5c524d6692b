/* See listen.h. */
#include "app/serve/http/listen.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#define BACKLOG 128
#define UNREAD (128 << 10) /* send buffer of the kernel for a client, in bytes */
#define SYSTEMD_FIRST 3    /* sd_listen_fds(3) */

static int open_failed(const struct options *o, int fd, int why, struct error *e)
{
    if (fd >= 0)
        close(fd);
    return error_set(e, ERR_IO, "cannot listen on %s port %d: %s%s", o->host, o->port,
                     strerror(why), why == EADDRINUSE ? "; another --port may be free" : "");
}

static bool is_loopback(const struct sockaddr *a)
{
    if (a->sa_family == AF_INET)
        return ntohl(((const struct sockaddr_in *)(const void *)a)->sin_addr.s_addr) >> 24 == 127;
    return a->sa_family == AF_INET6 &&
           IN6_IS_ADDR_LOOPBACK(&((const struct sockaddr_in6 *)(const void *)a)->sin6_addr);
}

/* The listening address as a URL. */
static void name_it(struct listener *l)
{
    struct sockaddr_storage a = {0};
    socklen_t n = sizeof a;
    char host[64] = "", port[8] = "";

    getsockname(l->fd, (struct sockaddr *)&a, &n);
    if (a.ss_family == AF_UNIX) {
        snprintf(l->where, sizeof l->where, "unix:%.100s",
                 ((const struct sockaddr_un *)(const void *)&a)->sun_path);
        l->loopback = true;
        return;
    }
    getnameinfo((struct sockaddr *)&a, n, host, sizeof host, port, sizeof port,
                NI_NUMERICHOST | NI_NUMERICSERV);
    snprintf(l->where, sizeof l->where, strchr(host, ':') ? "http://[%s]:%s" : "http://%s:%s", host,
             port);
    l->loopback = is_loopback((struct sockaddr *)&a);
}

static int open_unix(struct listener *l, const char *path, struct error *e)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    struct stat s;
    mode_t mask;
    int rc;

    if (!*path || strlen(path) >= sizeof a.sun_path)
        return error_set(e, ERR_USAGE, "--host unix:%s: a path of 1 to %zu bytes is possible", path,
                         sizeof a.sun_path - 1);
    strcpy(a.sun_path, path);
    if (lstat(path, &s) == 0 && S_ISSOCK(s.st_mode))
        unlink(path); /* left by an earlier run */
    l->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    mask = umask(0177);
    rc = l->fd < 0 ? -1 : bind(l->fd, (struct sockaddr *)&a, sizeof a);
    umask(mask);
    if (rc < 0 || listen(l->fd, BACKLOG) < 0) {
        rc = error_set(e, ERR_IO, "--host unix:%s: %s", path, strerror(errno));
        if (l->fd >= 0)
            close(l->fd);
        return rc;
    }
    snprintf(l->unlink, sizeof l->unlink, "%s", path);
    return 0;
}

static int open_address(struct listener *l, const struct options *o, struct error *e)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE}, *found = NULL;
    char port[16];
    int rc, on = 1;

    snprintf(port, sizeof port, "%d", o->port);
    if ((rc = getaddrinfo(o->host, port, &hints, &found)) != 0)
        return error_set(e, ERR_USAGE, "--host %s: %s", o->host, gai_strerror(rc));
    l->fd = socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (l->fd < 0)
        rc = errno;
    else if (setsockopt(l->fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) < 0 ||
             bind(l->fd, found->ai_addr, found->ai_addrlen) < 0 || listen(l->fd, BACKLOG) < 0)
        rc = errno;
    freeaddrinfo(found);
    return rc ? open_failed(o, l->fd, rc, e) : 0;
}

/* A socket passed by systemd; -1: none. */
static int inherited(void)
{
    const char *pid = getenv("LISTEN_PID"), *n = getenv("LISTEN_FDS");
    int listening = 0;
    socklen_t size = sizeof listening;

    if (!pid || !n || strtol(pid, NULL, 10) != (long)getpid() || strtol(n, NULL, 10) < 1)
        return -1;
    if (getsockopt(SYSTEMD_FIRST, SOL_SOCKET, SO_ACCEPTCONN, &listening, &size) < 0 || !listening)
        return -1;
    return SYSTEMD_FIRST;
}

int listener_open(struct listener *l, const struct options *o, struct error *e)
{
    int rc = 0, unread = UNREAD;

    *l = (struct listener){.fd = inherited()};
    if (l->fd < 0)
        rc = strncmp(o->host, "unix:", 5) == 0 ? open_unix(l, o->host + 5, e)
                                               : open_address(l, o, e);
    if (rc < 0)
        return rc;
    /* Accepted sockets inherit this. By default it grows to megabytes per client that does not
     * read. */
    setsockopt(l->fd, SOL_SOCKET, SO_SNDBUF, &unread, sizeof unread);
    name_it(l);
    return 0;
}

void listener_forget(struct listener *l)
{
    if (l->unlink[0])
        unlink(l->unlink);
    l->unlink[0] = 0;
}
