"""Writes the models of this folder, with an input and Keras's output for each. It needs tensorflow-cpu 2.21, keras 3.15 and
tf2onnx 1.17; the tests do not.

    python make.py
"""
import os
from pathlib import Path

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
import keras  # noqa: E402
import numpy as np  # noqa: E402
from keras import layers  # noqa: E402

HERE = Path(__file__).resolve().parent


def convolutional():
    """Channels last, so transposes around convolutions; SAME padding; batch normalisation folded into them."""
    inputs = keras.Input((32, 32, 3))
    x = layers.Conv2D(16, 3, padding="same", strides=2)(inputs)
    x = layers.ReLU(max_value=6)(layers.BatchNormalization()(x))
    x = layers.LeakyReLU()(layers.LayerNormalization()(layers.DepthwiseConv2D(3, padding="same")(x)))
    x = layers.AveragePooling2D(2, padding="same")(x)
    x = layers.SeparableConv2D(24, 3, padding="same", activation="swish")(x)
    x = layers.UpSampling2D(2, interpolation="bilinear")(x)
    x = layers.Conv2DTranspose(8, 3, strides=2, padding="same", activation="elu")(x)
    return keras.Model(inputs, layers.Dense(10)(layers.GlobalAveragePooling2D()(x)))


def recurrent():
    """tf2onnx writes the bidirectional LSTM as one op, and the GRU as a Loop over its steps."""
    inputs = keras.Input((12,), dtype="int32")
    x = layers.Bidirectional(layers.LSTM(12, return_sequences=True))(layers.Embedding(50, 16)(inputs))
    return keras.Model(inputs, layers.Dense(5)(layers.GRU(10)(x)))


def attention():
    """Batched einsum becomes reshapes and products whose shapes are computed from shapes."""
    inputs = keras.Input((10, 16))
    x = layers.LayerNormalization()(layers.MultiHeadAttention(2, 8)(inputs, inputs) + inputs)
    x = x + layers.Dense(16)(layers.Dense(32, activation="tanh")(x))
    return keras.Model(inputs, layers.Dense(3)(layers.Flatten()(x)))


if __name__ == "__main__":
    for build in (convolutional, recurrent, attention):
        keras.utils.set_random_seed(0)
        model = build()
        shape = (4, *model.input_shape[1:])
        random = np.random.default_rng(0)
        x = random.integers(0, 50, shape).astype("int32") if build is recurrent else random.standard_normal(shape).astype("f")
        y = model(x).numpy()
        model.export(HERE / f"{build.__name__}.onnx", format="onnx", verbose=False)
        np.savez_compressed(HERE / f"{build.__name__}.npz", x=x, y=y)
