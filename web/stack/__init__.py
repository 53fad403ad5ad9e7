"""Parts of the local stack; `web.local` is what the rest of the program calls.

processes    a process that can be told from a later one with its pid, and found without its parent
addresses    folders, sockets and environment variables of a home
postgres     start one embedded PostgreSQL
valkey       start one embedded Valkey
servers      both, for as long as a block lasts
programs     the service's own processes, as data
state        what the supervisor tells `up`, `down` and `status`
conditions   what the stack needs of a machine, looked at before it starts
supervisor   the process that starts all of them and looks after them
certificates for the servers of docker-compose.yml; the local stack has sockets of mode 0700
"""
