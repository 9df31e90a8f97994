/* The floor of a broker: an event loop that reads Kafka's frames, writes their records to a file and
 * sends answers that were prepared. It checks nothing, knows no topic and keeps no state.
 *
 * floor PORT FILE LOG ANSWERS: the records go to FILE, further appends to LOG. ANSWERS has, for each
 * API, in integers of 4 bytes of this machine: its key, the bytes of a frame before its records (-1:
 * none are written) and behind them, the number of the further appends and their sizes, the stored
 * bytes behind the answer, the size of the answer and the answer. floors.py writes it.
 */
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

enum { KEYS = 128, BUFFER = 4 << 20, EVENTS = 64, APPENDS = 8 };

struct api {
    int32_t skip, tail, appends, sizes[APPENDS], stored, size;
    char *answer;
};

struct connection {
    int fd;
    size_t filled;
    char data[BUFFER];
};

static struct api apis[KEYS];
static char out[BUFFER], zeros[1 << 16];
static int records, further;
static off_t position;

static void check(int failed, const char *what) {
    if (failed) {
        perror(what);
        exit(1);
    }
}

static int32_t number(FILE *file) {
    int32_t value;
    check(fread(&value, sizeof value, 1, file) != 1, "answers");
    return value;
}

static void read_answers(const char *path) {
    FILE *file = fopen(path, "rb");
    check(!file, path);
    for (int32_t count = number(file); count > 0; count--) {
        struct api *api = &apis[number(file)];
        api->skip = number(file);
        api->tail = number(file);
        api->appends = number(file);
        for (int at = 0; at < api->appends; at++)
            api->sizes[at] = number(file);
        api->stored = number(file);
        api->size = number(file);
        api->answer = malloc(api->size);
        check(fread(api->answer, api->size, 1, file) != 1, path);
    }
    fclose(file);
}

/* Serve one frame; return the size of its answer, which is written at `to`. */
static size_t serve(const char *frame, size_t size, char *to) {
    const struct api *api = &apis[(unsigned char)frame[5]];
    if (api->skip >= 0) {
        size_t wanted = size - api->skip - api->tail;
        check(write(records, frame + api->skip, wanted) != (ssize_t)wanted, "write");
    }
    for (int at = 0; at < api->appends; at++)
        check(write(further, zeros, api->sizes[at]) != api->sizes[at], "append");
    memcpy(to, api->answer, api->size);
    memcpy(to + 4, frame + 8, 4); /* the correlation id */
    if (api->stored) {
        check(pread(records, to + api->size, api->stored, position) != api->stored, "pread");
        position += api->stored;
    }
    return api->size + api->stored;
}

static int take(struct connection *each) {
    ssize_t got = read(each->fd, each->data + each->filled, BUFFER - each->filled);
    if (got <= 0)
        return 0;
    each->filled += got;
    size_t at = 0, answered = 0;
    while (each->filled - at >= 4) {
        uint32_t size;
        memcpy(&size, each->data + at, 4);
        size = ntohl(size) + 4;
        if (each->filled - at < size)
            break;
        answered += serve(each->data + at, size, out + answered);
        at += size;
    }
    if (at && each->filled > at)
        memmove(each->data, each->data + at, each->filled - at);
    each->filled -= at;
    for (size_t sent = 0; sent < answered;) {
        ssize_t count = send(each->fd, out + sent, answered - sent, MSG_NOSIGNAL);
        if (count < 0)
            return 0;
        sent += count;
    }
    return 1;
}

static int listening(int port) {
    int fd = socket(AF_INET, SOCK_STREAM, 0), yes = 1;
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons(port)};
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    check(bind(fd, (struct sockaddr *)&at, sizeof at) || listen(fd, 64), "listen");
    return fd;
}

static void watch(int loop, int fd, void *data) {
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = data};
    check(epoll_ctl(loop, EPOLL_CTL_ADD, fd, &event), "epoll_ctl");
}

int main(int count, char **words) {
    check(count != 5, "floor PORT FILE LOG ANSWERS");
    records = open(words[2], O_RDWR | O_CREAT | O_APPEND, 0600);
    further = open(words[3], O_RDWR | O_CREAT | O_APPEND, 0600);
    check(records < 0 || further < 0, "open");
    read_answers(words[4]);
    int server = listening(atoi(words[1])), loop = epoll_create1(0), yes = 1;
    watch(loop, server, NULL);
    for (;;) {
        struct epoll_event events[EVENTS];
        int ready = epoll_wait(loop, events, EVENTS, -1);
        for (int at = 0; at < ready; at++) {
            struct connection *each = events[at].data.ptr;
            if (each == NULL) {
                each = calloc(1, sizeof *each);
                each->fd = accept(server, NULL, NULL);
                setsockopt(each->fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
                watch(loop, each->fd, each);
            } else if (!take(each)) {
                close(each->fd);
                free(each);
            }
        }
    }
}
