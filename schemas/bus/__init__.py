"""Shell: the log: publishers, readers, and what turns records into events. The only door to Kafka.

aiokafka is used here and nowhere else but in streams, where Faust brings its own.

Next: gateway/app.py
"""

from schemas.bus.access import BusLimits, KafkaAccess, kafka_access
from schemas.bus.failures import is_of_record
from schemas.bus.production import Delivery
from schemas.bus.publisher import Publisher
from schemas.bus.reader import Reader
from schemas.bus.resolver import Resolver
from schemas.bus.schema_log import SchemaLog
from schemas.bus.transactional import TransactionalPublisher
from schemas.records import Bounds, Outgoing, Place, Placed, Record, rejection

__all__ = [
    "Bounds",
    "BusLimits",
    "Delivery",
    "KafkaAccess",
    "Outgoing",
    "Place",
    "Placed",
    "Publisher",
    "Reader",
    "Record",
    "Resolver",
    "SchemaLog",
    "TransactionalPublisher",
    "is_of_record",
    "kafka_access",
    "rejection",
]
