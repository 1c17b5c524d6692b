/* libmicrohttpd, opened when the server starts (engine/base/library.h): its functions are called as
 * mhd.MHD_…. Any thread, after mhd_open. */
#ifndef APP_SERVE_COMMON_MHD_H
#define APP_SERVE_COMMON_MHD_H

#include "engine/base/library.h"

#include <microhttpd.h>

/* clang-format off */
#define MHD_FUNCTIONS(X) \
    X(MHD_add_response_header) X(MHD_create_response_from_buffer) \
    X(MHD_create_response_from_callback) X(MHD_destroy_response) X(MHD_get_connection_info) \
    X(MHD_get_connection_values) X(MHD_lookup_connection_value) \
    X(MHD_lookup_connection_value_n) X(MHD_queue_response) X(MHD_quiesce_daemon) \
    X(MHD_resume_connection) X(MHD_start_daemon) X(MHD_stop_daemon) X(MHD_suspend_connection)
/* clang-format on */

struct mhd {
    MHD_FUNCTIONS(LIBRARY_MEMBER)
};
extern struct mhd mhd;

/* 0: the functions may be called. ERR_DEVICE: the library is not installed. */
int mhd_open(struct error *e);

#endif
