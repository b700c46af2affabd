/*
CartPole as a simulator in C, with the physics of Gymnasium's CartPole-v1.

    cc -O2 -o cartpole examples/remote_simulator/cartpole.c -lm
    ./cartpole 127.0.0.1 5600

It plays one game after another. When its connection is lost it connects again, and it ends after a minute without a run.
*/

#define _POSIX_C_SOURCE 200809L
#include <math.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { STEPS = 500, RETRIES = 600 }; /* a game is truncated after so many; 600 times 0.1 s */

static double x, speed, angle, turn;
static int steps;

static void reset(unsigned seed)
{
    double *state[] = {&x, &speed, &angle, &turn};
    srand(seed);
    for (int at = 0; at < 4; at++)
        *state[at] = 0.1 * rand() / RAND_MAX - 0.05;
    steps = 0;
}

/* Returns whether the pole has fallen, or the cart has left the track. */
static int step(int action)
{
    double force = action == 1 ? 10 : -10, c = cos(angle), s = sin(angle);
    double push = (force + 0.05 * turn * turn * s) / 1.1; /* 1.1 kg of cart and pole; 0.05 is the pole's kg times m */
    double bend = (9.8 * s - c * push) / (0.5 * (4.0 / 3 - 0.1 * c * c / 1.1));
    double pull = push - 0.05 * bend * c / 1.1;
    x += 0.02 * speed, speed += 0.02 * pull;
    angle += 0.02 * turn, turn += 0.02 * bend;
    steps++;
    return fabs(x) > 2.4 || fabs(angle) > 12 * 3.14159265358979 / 180;
}

/* Returns a connected socket, or -1. */
static int connected(const char *host, const char *port)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *found;
    int link = -1, on = 1;
    if (getaddrinfo(host, port, &hints, &found) != 0)
        return -1;
    for (struct addrinfo *at = found; at && link < 0; at = at->ai_next) {
        link = socket(at->ai_family, at->ai_socktype, at->ai_protocol);
        if (link >= 0 && connect(link, at->ai_addr, at->ai_addrlen) != 0) {
            close(link);
            link = -1;
        }
    }
    freeaddrinfo(found);
    if (link >= 0)
        setsockopt(link, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    return link;
}

/* Answers each line of the run until the connection is closed. Returns whether there was one. */
static int play(int link)
{
    FILE *in = fdopen(link, "r");
    char line[1000], answer[400], *value;
    int has_heard = 0;
    while (fgets(line, sizeof line, in)) {
        has_heard = 1;
        if ((value = strstr(line, "\"reset\":"))) {
            reset((unsigned)strtoul(value + 8, NULL, 10));
            snprintf(answer, sizeof answer, "{\"observation\": [%.9g, %.9g, %.9g, %.9g]}\n", x, speed, angle, turn);
        } else if ((value = strstr(line, "\"action\":"))) {
            const char *fallen = step(atoi(value + 9)) ? "true" : "false", *late = steps >= STEPS ? "true" : "false";
            snprintf(answer, sizeof answer,
                     "{\"observation\": [%.9g, %.9g, %.9g, %.9g], \"reward\": 1, \"terminated\": %s, \"truncated\": %s}\n",
                     x, speed, angle, turn, fallen, late);
        } else {
            fprintf(stderr, "dropped: %s", line);
            break;
        }
        if (send(link, answer, strlen(answer), MSG_NOSIGNAL) < 0)
            break;
    }
    fclose(in);
    return has_heard;
}

int main(int count, char **words)
{
    struct timespec pause = {0, 100000000};
    if (count != 3) {
        fprintf(stderr, "usage: cartpole HOST PORT\n");
        return 2;
    }
    for (int left = RETRIES; left > 0; left--) {
        int link = connected(words[1], words[2]);
        if (link >= 0 && play(link))
            left = RETRIES;
        nanosleep(&pause, NULL);
    }
    return 0;
}
