/* What a service tells its manager (sd_notify(3), whose protocol is a datagram and needs no
 * library): "READY=1", "STOPPING=1", "STATUS=…". Without a manager nothing happens. Main thread. */
#ifndef APP_SERVE_SD_NOTIFY_H
#define APP_SERVE_SD_NOTIFY_H

/* One or more lines. What cannot be delivered is nobody's loss. */
void sd_notify_tell(const char *state);

#endif
