#!/bin/sh
# Write the variables of the official image that docker-compose.yml sets to zoo.cfg, and start ZooKeeper.
set -eu
cat > /conf/zoo.cfg <<CONFIG
dataDir=/data
dataLogDir=/datalog
clientPort=2181
tickTime=$ZOO_TICK_TIME
autopurge.purgeInterval=$ZOO_AUTOPURGE_PURGEINTERVAL
4lw.commands.whitelist=srvr
admin.enableServer=false
CONFIG
exec java -cp /usr/share/java/zookeeper.jar:/usr/share/java/slf4j-simple.jar \
    org.apache.zookeeper.server.quorum.QuorumPeerMain /conf/zoo.cfg
